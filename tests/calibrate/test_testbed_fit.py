"""The fit of a testbed gives back what the runs were made with, and says what they do not determine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.once import once
from support.testbed import FAST, GIGABIT, TRUE, as_measured, setting

from calibrate.testbed.clocks import timed_directly, work_of_cores
from calibrate.testbed.fitting import fit_platform
from calibrate.testbed.platform import MEANINGS, PRIORS, Platform
from calibrate.testbed.prediction import predict_setting
from calibrate.testbed.scenarios import scenario_of
from simulator import simulate
from simulator.base.errors import CalibrationError, InputError


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    def fit(folder: Path) -> None:
        settings = [
            setting("async", 1, FAST),
            setting("between-graph", 1, FAST, "ladder-1mb/16"),
            setting("between-graph", 1, GIGABIT),
            setting("sync", 1, FAST),
            setting("async", 1),
            setting("ring", 2, FAST),
            setting("ring", 2, GIGABIT, "ladder-1mb"),
            setting("ring", 5, FAST, "ladder-1mb"),
            setting("ring", 2),
        ]
        fitted = fit_platform([as_measured(folder, one) for one in settings], "made up", 2.0)
        fitted.write(folder / "machine.json")
        assert Platform.read(folder / "machine.json") == fitted

    return Platform.read(once(tmp_path_factory, "testbed-fit", fit) / "machine.json")


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("wire_bytes_per_byte", 0.003), ("turn_per_byte_s", 0.05), ("ring_cpu_per_byte_s", 0.01), ("loopback_ring_per_byte_s", 1e-6),
        ("accumulate_s", 0.15),
        ("dispatch_s", 1e-6), ("coordinator_s", 1e-6), ("session_s", 1e-6), ("sleep_s", 1e-6),
    ],
)  # fmt: skip
def test_what_the_runs_determine_comes_out(platform: Platform, name: str, within: float) -> None:
    found = platform.parameters[name]
    assert found.determined
    assert found.value == pytest.approx(TRUE[name], rel=within)
    assert found.low <= TRUE[name] * (1 + 1e-9)
    assert TRUE[name] <= found.high * (1 + 1e-9)
    assert found.why


def test_what_a_step_costs_over_loopback_and_what_a_byte_come_apart_by_sizes(tmp_path: Path) -> None:
    """Two sizes of 2 and 8 MiB there and back: the least squares weigh errors of 8% and the priors; half as much again is seen."""
    for factor in (1.0, 1.5):
        true = TRUE | {"loopback_step_s": 4.5e-3 * factor, "loopback_per_byte_s": 1.0e-9 * factor}
        runs = [as_measured(tmp_path, setting("between-graph", 1, model=model), true) for model in ("ladder-1mb", "ladder-4mb")]
        parameters, drawn = work_of_cores(runs, 400, np.random.default_rng(0))
        for name in ("loopback_step_s", "loopback_per_byte_s"):
            one = parameters[name]
            assert one.determined
            assert one.low < true[name] < one.high
            assert one.value == pytest.approx(true[name], rel=0.1)
        assert set(parameters) == {"loopback_step_s", "loopback_per_byte_s"}  # of what no run does nothing is said
        # known together better than apart
        whole = [row["loopback_step_s"] + row["loopback_per_byte_s"] * 8.4e6 for row in drawn]
        assert np.std(whole) / np.mean(whole) < 0.1


def test_what_steps_tensors_servers_and_layers_cost_the_cores_behind_links_come_apart(tmp_path: Path) -> None:
    """Runs of one worker that differ in one thing each; costs half as large again are seen as such."""
    link, layers = {"bandwidth": "1 Gbit/s"}, {"overlap": True}
    names = ("step_cpu_s", "managed_cpu_s", "server_cpu_s", "tensor_cpu_s", "elsewhere_cpu_s", "cpu_per_byte_s", "layer_cpu_s")
    for factor in (1.0, 1.5):
        true = TRUE | {name: PRIORS[name][0] * factor for name in names}
        kinds = [
            ("ladder-1mb", {}), ("ladder-16mb", {}), ("ladder-1mb/64", {}), ("ladder-1mb/16", layers),
            ("ladder-1mb/16", {**layers, "servers": 3}), ("ladder-1mb", {"servers": 4}),
        ]  # fmt: skip
        runs = [as_measured(tmp_path, setting("between-graph", 1, link, model, **more), true) for model, more in kinds]
        runs += [as_measured(tmp_path, setting("sync", 1, link, "ladder-1mb"), true)]
        parameters, drawn = work_of_cores(runs, 10, np.random.default_rng(0))
        assert set(parameters) == set(names) == set(drawn[0])
        for name in names:
            assert parameters[name].low < true[name] < parameters[name].high
            assert parameters[name].value == pytest.approx(true[name], rel=0.25)


def test_a_coordinators_work_is_that_for_a_single_asynchronous_worker(tmp_path: Path) -> None:
    """Of several workers, one waits while the coordinator serves another; of other modes, nobody is served."""
    runs = [as_measured(tmp_path, setting(mode, workers)) for mode, workers in (("async", 1), ("async", 4), ("between-graph", 1))]
    found = timed_directly(runs, 2.0)
    for name in ("dispatch_s", "coordinator_s"):
        assert found[name].value == pytest.approx(TRUE[name])


def test_what_no_run_determines_keeps_its_prior_and_is_flagged(platform: Platform) -> None:
    for name in ("weight_sigma", "queue_s", "server_s"):
        found = platform.parameters[name]
        assert not found.determined
        assert (found.value, found.low, found.high) == PRIORS[name]


def test_a_larger_setting_is_predicted_as_the_true_machine_would_run_it(platform: Platform) -> None:
    law = {"kind": "gamma", "shape": 16.0}
    larger = setting("between-graph", 4, GIGABIT, "ladder-1mb", compute={"mean": "50 ms", "law": law}, steps=20)
    truth = simulate(scenario_of(larger, TRUE, 2.0, replications=59, seed=7))
    found = predict_setting(larger, platform, replications=59)
    assert found.updates_per_s.mean == pytest.approx(truth.updates_per_s.mean, rel=0.01)
    assert found.updates_per_s.low < truth.updates_per_s.mean < found.updates_per_s.high
    assert found.mean_staleness == pytest.approx(truth.staleness.mean, rel=0.02)
    assert isinstance(found.staleness, Counter)


def test_predictions_repeat_byte_for_byte(platform: Platform) -> None:
    one = setting("async", 2, FAST, compute={"mean": "50 ms", "law": {"kind": "exponential"}})
    assert predict_setting(one, platform, replications=19) == predict_setting(one, platform, replications=19)


def test_a_key_of_a_platforms_file_that_is_none_is_named(platform: Platform, tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    platform.write(path)
    path.write_text(path.read_text(encoding="utf-8").replace('"sleep_s": {', '"slep_s": {'), encoding="utf-8")
    with pytest.raises(InputError, match="slep_s"):
        Platform.read(path)


def test_every_parameter_has_a_meaning_and_a_prior() -> None:
    assert set(MEANINGS) == set(PRIORS)
    assert all(low < value < high for value, low, high in PRIORS.values())


def test_without_a_single_worker_there_is_no_fit(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="one worker and a server"):
        fit_platform([as_measured(tmp_path, setting("ring", 2, FAST))], "ring only", 2.0)
