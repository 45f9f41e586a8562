"""What processes of one machine share: components of variance that are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.needs import needs_tensorflow

import calibrate
from calibrate.fit.runs import shared_spread
from calibrate.fit.step import fit_workload
from calibrate.fit.writing import write_fitted
from calibrate.measurements import StepTime, read_measurements
from calibrate.profiling import obstacle_to_at_once, profile_at_once
from simulator.base.errors import CalibrationError
from simulator.catalogue.loading import load_workload


def _levels(rng: np.random.Generator, share: float, launches: int, processes: int, noise: float = 0.0) -> np.ndarray:
    cv = 0.05
    common = cv * np.sqrt(share) * rng.standard_normal((launches, 1))
    own = cv * np.sqrt(1.0 - share) * rng.standard_normal((launches, processes))
    return 1.0 + common + own + np.sqrt(noise) * rng.standard_normal((launches, processes))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("noise", [0.0, 0.02**2])
def test_known_components_are_recovered(share: float, noise: float) -> None:
    rng = np.random.default_rng(3)
    found = [shared_spread(_levels(rng, share, 40, 4, noise), noise) for _ in range(60)]
    values = [one.share for one in found]
    assert None not in values
    # an intraclass correlation of 40 launches by 4 has a standard error of at most 0.08 (Fisher 1925); 60 of them 0.01
    assert np.mean(values) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8])
def test_the_interval_covers_with_few_launches_too(share: float) -> None:
    rng = np.random.default_rng(4)
    tries = 400
    inside = sum(low <= share <= high for low, high in (shared_spread(_levels(rng, share, 5, 2)).interval_90 for _ in range(tries)))
    # exact: 360 of 400 expected (380 where the share is at its bound), standard deviation 6
    assert inside >= 360 - 24


def test_how_fast_processes_are_beside_each_other_does_not_matter() -> None:
    levels = _levels(np.random.default_rng(5), 0.6, 10, 3)
    assert shared_spread(1.4 * levels).share == pytest.approx(shared_spread(levels).share)


def test_few_launches_say_little_and_noise_says_nothing() -> None:
    rng = np.random.default_rng(6)
    widths = [np.subtract(*shared_spread(_levels(rng, 0.5, 3, 2)).interval_90[::-1]) for _ in range(40)]
    assert np.median(widths) > 0.7
    levels = 1.0 + 0.01 * rng.standard_normal((5, 2))
    found = shared_spread(levels, noise=0.01**2)
    assert found.share is None
    assert found.interval_90 == (0.0, 1.0)


def test_one_launch_or_one_process_is_too_few() -> None:
    for shape in ((1, 4), (4, 1)):
        with pytest.raises(CalibrationError, match="at least two launches of at least two processes"):
            shared_spread(np.ones(shape))


def _launched(synthetic: Any, share: float, launches: int, processes: int, seed: int = 0) -> list[Path]:
    """Files of processes at once: plain steps alone, as the probe writes them."""
    levels = _levels(np.random.default_rng(seed), share, launches, processes)
    files = []
    for launch in range(launches):
        for process in range(processes):
            speed = 1.3 * levels[launch, process]  # slower beside each other than alone
            truth = synthetic.Truth(forward=(1e-3 * speed, 50e-6 * speed), backward=(2e-3 * speed, 100e-6 * speed), apply_s=0.4e-3 * speed)
            rows = synthetic.step_records(truth, synthetic.gamma_of(0.02), 100 * launch + process)
            kept = [row for row in rows if row["kind"] in ("header", "fingerprint", "step", "end")]
            arguments = {**kept[0]["arguments"], "launch": launch + 1, "together": f"/tmp/x:{process}:{processes}"}
            files.append(synthetic.lines([{**kept[0], "arguments": arguments}, *kept[1:]], f"launch{launch}-{process}.ndjson"))
    return files


def test_launches_beside_a_run_fill_the_workload(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.steps()
    lone = fit_workload(run, "lone")
    workload = fit_workload([run, *_launched(synthetic, 0.8, 12, 2)], "together")
    low, high = workload.fit.intervals_90["run_to_run_shared"]
    assert low < workload.run_to_run_shared < high
    assert low < 0.8 < high
    assert "12 launches of 2 simultaneous processes" in workload.provenance["at_once"]
    assert (workload.forward, workload.run_to_run_cv) == (lone.forward, lone.run_to_run_cv)
    # slower by 0.3 beside each other than alone, within what a level's own spread of 5% leaves to 12 launches of 2
    low, high = workload.fit.intervals_90["busy_core_slowdown"]
    assert low < workload.busy_core_slowdown < high
    assert workload.busy_core_slowdown == pytest.approx(0.3, abs=0.06)
    assert "per other busy core" in workload.provenance["at_once"]
    assert workload.uncertainty.parameters[-1] == "busy_core_slowdown"
    assert np.mean([draw[-1] for draw in workload.uncertainty.draws]) == pytest.approx(workload.busy_core_slowdown, abs=0.03)
    assert lone.busy_core_slowdown == 0.0
    assert load_workload(write_fitted(workload, tmp_path / "w.toml")) == workload
    assert lone.run_to_run_shared is None


def test_a_launch_that_was_stopped_is_left_out(synthetic: Any) -> None:
    files = _launched(synthetic, 0.9, 6, 2)
    files[0].write_text("".join(files[0].read_text().splitlines(keepends=True)[:-1]))  # has no end
    workload = fit_workload([synthetic.steps(), *files], "stopped")
    assert "6 launches of 2 simultaneous processes, 1 of them disturbed or stopped and left out" in workload.provenance["at_once"]


def test_launches_alone_are_no_calibration(synthetic: Any) -> None:
    with pytest.raises(CalibrationError, match="is one of several simultaneous processes") as refusal:
        fit_workload(_launched(synthetic, 0.5, 2, 2), "alone")
    assert refusal.value.exit_code == 2


def test_what_cannot_be_measured_at_once_is_said() -> None:
    cores = len(os.sched_getaffinity(0))
    assert f"there are {cores}" in obstacle_to_at_once(cores + 1, "CPU")
    assert "only on CPUs" in obstacle_to_at_once(2, "GPU")
    assert obstacle_to_at_once(cores, "CPU") == ""


@pytest.mark.usefixtures("warm_probes")
@needs_tensorflow
def test_real_processes_keep_to_cores_of_their_own(tmp_path: Path) -> None:
    if obstacle_to_at_once(2, "CPU"):
        pytest.skip("one core")
    model = Path(calibrate.__file__).parent.parent / "models" / "keras" / "mlp.py"
    files = profile_at_once(
        f"{model}:build", "mlp", launches=2, batches=(2, 4), steps=6, rounds=3, repeats=0, device="CPU", folder=tmp_path, timeout_s=200
    )
    assert len(files) == 4
    seen = [read_measurements(file) for file in files]
    assert all(one.complete and len(one.of(StepTime)) == 12 for one in seen)
    cores = [set(one.header.arguments["cores"].split(",")) for one in seen[:2]]
    assert not cores[0] & cores[1]
    assert [one.header.arguments["launch"] for one in seen] == [1, 1, 2, 2]
