"""The steps of a profile as a recorded run: profiles made by hand, in TensorFlow's own classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.needs import needs_tensorflow
from support.profiles import Sample, gpu_sample, host_sample

from calibrate.recorded.reading import read_recorded
from simulator.base.errors import InputError

pytestmark = [needs_tensorflow, pytest.mark.usefixtures("warm_probes")]


def test_steps_of_a_host_and_of_a_device(tmp_path: Path) -> None:
    host_sample().write(tmp_path / "host" / "plugins" / "profile" / "run" / "lab.xplane.pb")
    gpu_sample().write(tmp_path / "gpu.xplane.pb")
    host, gpu = read_recorded([tmp_path / "host", tmp_path / "gpu.xplane.pb"])
    # the last step has no next one that it lasts to: a host's ends with its own mark, a device's with its last kernel
    assert host.duration_s[:-1] == pytest.approx(1e-3)
    assert gpu.duration_s[:-1] == pytest.approx(1e-3)
    assert host.input_s[0] == pytest.approx(1e-4)
    assert gpu.compute_s[0] == pytest.approx(0.9e-3)  # 100 microseconds of the collective are beside no kernel
    assert (host.kind, host.each, host.ended, gpu.facts.hostname) == ("profile", "step", True, "lab")
    assert "recording takes time" in host.remarks[0]


def test_a_devices_own_line_of_steps_needs_no_marks_of_the_host_and_may_have_one_step(tmp_path: Path) -> None:
    sample = Sample()
    sample.add(("/device:TPU:0", "Steps"), "7", 0.0, 900.0)
    sample.add(("/device:TPU:0", "XLA Ops"), "fusion", 0.0, 800.0)
    (run,) = read_recorded([sample.write(tmp_path / "tpu.xplane.pb")])
    assert (run.steps.tolist(), run.duration_s.tolist()) == ([7], [pytest.approx(0.9e-3)])
    (run,) = read_recorded([host_sample(1).write(tmp_path / "host.xplane.pb")])
    assert run.duration_s.tolist() == [pytest.approx(0.98e-3)]


def test_what_is_no_profile_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.xplane.pb").write_bytes(b"no protobuf")
    with pytest.raises(InputError) as raised:
        read_recorded([tmp_path / "x.xplane.pb"])
    assert "\n" not in str(raised.value)
