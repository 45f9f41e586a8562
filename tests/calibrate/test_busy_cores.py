"""What processes apart show: times of their own making, so that the slowdown is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.testbed import TRUE, as_measured, setting

from calibrate.testbed.clocks import busy_cores, slowdowns
from calibrate.testbed.fitting import fit_platform
from calibrate.testbed.prediction import predict_setting
from calibrate.testbed.readings import Readings, read_run
from calibrate.testbed.scenarios import RealCompute, scenario_of
from calibrate.testbed.setting import TestbedSetting
from calibrate.validation.matrix import read_matrix
from calibrate.validation.running import compute_of
from simulator import simulate
from simulator.base.errors import ScenarioError
from simulator.spec.distributions import Constant

ALONE_S = 0.01


def apart(
    folder: Path, slowdown: float = 0.3, workers: int = 2, cores: int = 4, others: tuple[float | None, ...] = (0.0, 0.0), **fields: Any
) -> Readings:
    """The file of k processes apart with steps of 10 ms, 1 + slowdown (k - 1) times as long together; the first of a turn is slow."""
    given = setting("apart", workers, servers=0, compute={"kind": "real"}, **fields)
    lines: list[dict[str, Any]] = [
        {"kind": "header", "schema_version": 1, "probe": "testbed", "started": "", "arguments": given.for_probe(len(others), 0, 60.0)},
        {"kind": "fingerprint", "tensorflow": "2", "python": "3", "device": "", "device_kind": "CPU", "device_name": "", "cores": cores},
    ]
    turn_s, gap_s = 0.3, 2e-4
    for repeat, share in enumerate(others):
        for worker in range(workers):
            for turn in range(2 * workers):
                together = turn % 2 == 0
                if not together and turn // 2 != worker:
                    continue
                # each process begins its turn a little later than the one before
                now, step_s = turn * turn_s + 1e-3 * worker, ALONE_S * (1.0 + slowdown * (workers - 1) if together else 1.0)
                first = True
                while now < (turn + 1) * turn_s - 3 * step_s:
                    took_s = step_s * (2.0 if first and not together else 1.0)
                    lines.append({
                        "kind": "update", "repeat": repeat, "worker": worker, "start_s": now, "pulled_s": now,
                        "computed_s": now + took_s, "applied_s": now + took_s, "read_version": 0, "version": 1,
                    })  # fmt: skip
                    now, first = now + took_s + gap_s, False
        lines.append({"kind": "repeat", "repeat": repeat, "clock_drift_s": 0.0, "others_share": share})
    path = folder / f"apart-{given.hash}-{slowdown}-testbed-1.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"kind": "end"}]), encoding="utf-8")
    return read_run(path)


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("slowdown", [0.0, 0.3, 1.2])
def test_the_slowdown_for_each_other_busy_core(tmp_path, slowdown, workers):
    readings = apart(tmp_path, slowdown, workers)
    assert slowdowns(readings) == pytest.approx([slowdown] * 2, abs=1e-9)
    found = busy_cores(readings.setting, [readings])
    assert found is not None
    assert found.slowdown == pytest.approx(slowdown, abs=1e-9)
    assert np.concatenate(found.alone_s) == pytest.approx(ALONE_S)


def test_repeats_that_others_disturbed_do_not_count(tmp_path):
    assert len(slowdowns(apart(tmp_path, others=(0.01, 0.2, None)))) == 2  # None: not known, such as on another system


def test_more_processes_than_cores_say_nothing(tmp_path):
    readings = apart(tmp_path, workers=4, cores=2)
    assert slowdowns(readings) == []
    assert busy_cores(readings.setting, [readings]) is None


def test_only_the_same_model_and_batch_count(tmp_path):
    readings = apart(tmp_path)
    assert busy_cores(setting("async", 2, model="ladder-1mb", compute={"kind": "real"}), [readings]) is None
    assert busy_cores(setting("async", 2, batch=8, compute={"kind": "real"}), [readings]) is None
    assert busy_cores(setting("ring", 3, compute={"kind": "real"}), [readings]) is not None


def test_the_compute_of_a_prediction_is_that_of_processes_apart(tmp_path):
    runs = [apart(tmp_path, 0.3), apart(tmp_path, 0.5)]
    real = setting("async", 2, compute={"kind": "real"})
    found = compute_of(real, runs)
    assert found is not None
    assert found.mean_s == pytest.approx(ALONE_S)
    assert found.busy_core_slowdown == pytest.approx(0.4)
    # two runs of 0.3 and two of 0.5: s = 0.1155, over the root of 4
    assert found.busy_core_error == pytest.approx(0.0577, rel=1e-2)


def test_draws_are_about_the_value_and_never_negative():
    compute = RealCompute(mean_s=0.01, law=Constant(), mean_error_s=1e-4, busy_core_slowdown=0.05, busy_core_error=0.05)
    rng = np.random.default_rng(1)
    drawn = [compute.drawn(rng) for _ in range(2000)]
    assert min(one.busy_core_slowdown for one in drawn) == 0.0
    assert np.mean([one.mean_s for one in drawn]) == pytest.approx(0.01, rel=1e-3)
    assert np.std([one.mean_s for one in drawn]) == pytest.approx(1e-4, rel=0.1)


def test_real_replicas_of_one_process_share_its_cores(tmp_path):
    """n replicas on 2 cores: n / 2 x (compute beside the other core, all-reduce by copies), and the call before it."""
    values = TRUE | {"mirrored_per_byte_s": 1e-9, "mirrored_step_s": 0.0}
    for replicas in (2, 4):
        given = setting("mirrored", replicas, compute={"kind": "real"}, steps=20)
        compute = RealCompute(mean_s=0.02, law=Constant(), busy_core_slowdown=0.25)
        moved = 2 * (replicas - 1) / replicas * given.parameter_bytes
        want_s = replicas / 2 * (0.02 * 1.25 + 1e-9 * moved)
        found = simulate(scenario_of(given, values, 2.0, compute=compute, replications=2))
        assert 1.0 / found.updates_per_s.mean == pytest.approx(want_s, rel=0.1)


def test_the_all_reduce_of_one_process_is_fitted_to_its_own_clocks(tmp_path):
    runs = [as_measured(tmp_path, setting("async", 1)), as_measured(tmp_path, setting("mirrored", 2))]
    platform = fit_platform(runs, "two replicas", 2.0)
    assert platform.parameters["mirrored_per_byte_s"].determined
    assert platform.parameters["mirrored_step_s"].determined
    four = setting("mirrored", 4)
    truth = simulate(scenario_of(four, TRUE, 2.0, replications=2)).updates_per_s.mean
    assert predict_setting(four, platform, replications=19).updates_per_s.mean == pytest.approx(truth, rel=0.1)


def test_processes_apart_belong_into_the_fit(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(
        '[[fit]]\nmode = "async"\nworkers = 1\nservers = 1\n[[held_out]]\nmode = "apart"\nworkers = 2\ncompute = {kind = "real"}\n'
    )
    with pytest.raises(ScenarioError, match=r"put it into \[\[fit\]\]"):
        read_matrix(path)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"workers": 1}, "it needs at least 2 workers, not 1"),
        ({"link": {"bandwidth": "1 Gbit/s"}}, "leave link out"),
        ({"compute": {"mean": "5 ms"}}, "real compute of processes"),
        ({"servers": 1}, "takes no servers"),
    ],
)
def test_what_processes_apart_cannot_be(fields, rule):
    table = {"mode": "apart", "workers": 2, "compute": {"kind": "real"}, **fields}
    with pytest.raises(ValueError, match=rule):
        TestbedSetting.model_validate(table)
