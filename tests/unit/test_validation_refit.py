"""The refit: it finds what the points were made with, says what they do not tell, and does not flatter itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomlkit
from support.scenarios import scenario_table

from calibrate.validation.against_points import PointsCase, refit_to_points
from calibrate.validation.points import Setting, base_scenario, compared, scenarios_at
from calibrate.validation.refit import BOUND, candidates_of, noise_of, refit, refitted_table, with_factors
from simulator import load_scenario, simulate
from simulator.catalogue.loading import apply_settings, scenario_from_table
from simulator.scenario import Scenario

pytestmark = pytest.mark.slow

POINTS = Path("points.csv")
RING = {"kind": "multi-worker-mirrored"}
JITTER = {"kind": "lognormal", "sigma": 0.05}


def given(**parts: Any) -> dict[str, Any]:
    """A ring over 1 GB/s whose latency is next to nothing."""
    parts = {"strategy": RING, "workload": {"jitter": JITTER}, "run": {"steps": 30}, **parts}
    parts.setdefault("cluster", {"inter_node": {"bandwidth": "1 GB/s", "latency": "100 ns"}})
    return scenario_table(**parts)


def at(table: dict[str, Any], settings: list[Setting]) -> list[Scenario]:
    return scenarios_at(table, settings, source="s.toml", points=POINTS, beside=None)


def base_of(table: dict[str, Any], beside: Path | None = None) -> Scenario:
    return base_scenario(table, [Setting(workers=1, throughput=(1.0,), line=2)], source="s.toml", beside=beside)


def measured(table: dict[str, Any], changes: dict[str, Any], workers: tuple[int, ...], seed: int = 77) -> list[Setting]:
    """Three runs at each number of workers, of the scenario with some keys changed and another seed."""
    truth = apply_settings(table, [*changes.items(), ("run.seed", seed), ("run.replications", 3)])
    settings = [Setting(workers=count, throughput=(1.0,), line=2) for count in workers]
    runs = [simulate(scenario).throughput_of_each_replication for scenario in at(truth, settings)]
    return [setting.model_copy(update={"throughput": its}) for setting, its in zip(settings, runs, strict=True)]


SLOWER = {
    "cluster.inter_node.bandwidth": "300 MB/s",
    "workload.forward": {"base": "1.2 ms", "per_sample": "120 us"},
    "workload.backward": {"base": "2.4 ms", "per_sample": "240 us"},
}


def test_it_finds_what_the_points_were_made_with():
    settings = measured(given(), SLOWER, (1, 2, 4, 8))
    found = refit(settings, at(given(), settings))
    assert found.fitted.factors == {"compute": pytest.approx(1.2, rel=0.03), "bandwidth between nodes": pytest.approx(0.3, rel=0.05)}
    assert found.fitted.held == {"latency between nodes": "the points hardly depend on it"}
    for moved, true in zip(found.fitted.moved, (1.2, 0.3), strict=True):
        low, high = moved.interval
        assert low < true < high
        assert high / low < 1.3
    assert found.fitted.scatter < 2
    # beyond the points too
    (wide,) = measured(given(), SLOWER, (32,))
    table = refitted_table(given(), base_of(given()), found.fitted)
    (row,) = compared([wide], [simulate(scenario) for scenario in at(table, [wide])])
    assert abs(row.error) < 0.03


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cluster.inter_node.bandwidth": "14.5 Gbit/s"}, "bandwidth between nodes: the fit gives 1"),
        ({key: SLOWER[key] for key in ("workload.forward", "workload.backward")}, ""),
        ({"workload.forward.per_sample": "10 us", "workload.backward.per_sample": "20 us"}, "compute: the fit gives "),
    ],
)
def test_a_part_that_would_be_faster_than_it_can_be_is_told(changes, told, tmp_path):
    link = {"bandwidth": "10 Gbit/s", "latency": "100 ns", "sort": "ethernet"}
    counted = {"counted": {"flops_per_sample": 4e9}, "forward": {"base": "0 s", "per_sample": "100 us"},
               "backward": {"base": "0 s", "per_sample": "200 us"}}  # fmt: skip
    table = given(cluster={"inter_node": link, "device": "Tesla V100-SXM2"}, workload={"jitter": JITTER, **counted})
    settings = tuple(measured(table, changes, (1, 2, 4, 8)))
    case = PointsCase(table, "s.toml", None, tmp_path / "points.csv", settings, "samples/s")
    done = refit_to_points(case, lambda scenarios: [simulate(scenario) for scenario in scenarios])
    beyond = [note for note in done.validation.notes if "more than" in note and "The cause is something else" in note]
    assert [note.startswith(told) for note in beyond] == [True] * bool(told)
    section = done.table["workload" if told.startswith("compute") else "cluster"]
    assert all(note in str(section["provenance"]) for note in beyond)


def test_each_point_is_predicted_from_the_others_alone():
    settings = measured(given(), SLOWER, (1, 2, 4, 8))
    wrong = settings[-1].model_copy(update={"throughput": tuple(value / 2 for value in settings[-1].throughput)})
    spoiled = [*settings[:-1], wrong]
    found = refit(spoiled, at(given(), spoiled))
    without = found.left_out[-1]
    assert without.factors["bandwidth between nodes"] == pytest.approx(0.3, rel=0.1)
    assert [found.decisive(moved) for moved in found.fitted.moved if moved.candidate.name.startswith("bandwidth")] == [3]
    assert found.fitted.scatter > 3


def test_what_only_one_worker_shows_is_compute():
    settings = measured(given(), SLOWER, (1,))
    found = refit(settings, at(given(), settings))
    assert found.fitted.factors == {"compute": pytest.approx(1.2, rel=0.02)}
    assert set(found.fitted.held) == {"bandwidth between nodes", "latency between nodes"}
    assert found.left_out == ()


def test_two_quantities_that_the_points_cannot_tell_apart():
    table = given(cluster={"inter_node": {"bandwidth": "200 MB/s", "latency": "1 ms"}})
    settings = measured(table, {"cluster.inter_node.bandwidth": "100 MB/s"}, (4,))
    found = refit(settings, at(table, settings))
    told = " ".join(found.fitted.held.values())
    assert "the points cannot distinguish it from" in told
    assert "correlation" in told


def test_right_scenarios_are_left_as_they_are():
    settings = measured(given(), {}, (1, 2, 4, 8))
    found = refit(settings, at(given(), settings))
    assert all(factor == pytest.approx(1.0, rel=0.05) for factor in found.fitted.factors.values())


def test_points_from_another_world_end_at_the_bound():
    settings = [setting.model_copy(update={"throughput": (setting.throughput[0] / 1e4,)}) for setting in measured(given(), {}, (1,))]
    found = refit(settings, at(given(), settings))
    assert [moved.at_bound for moved in found.fitted.moved] == [True]
    assert found.fitted.moved[0].factor == pytest.approx(BOUND, rel=0.1)


def test_the_noise_is_that_of_the_repeats_or_the_usual_one():
    repeated = Setting(workers=1, throughput=(98.0, 102.0), line=2)
    assert noise_of([repeated, Setting(workers=2, throughput=(5.0,), line=3)]) == (pytest.approx(0.02828, rel=1e-3), True)
    assert noise_of([Setting(workers=2, throughput=(5.0,), line=3)]) == (0.02, False)


def test_quantities_that_are_nought_cannot_be_scaled_and_are_named():
    scenario = scenario_from_table(given(strategy={"kind": "parameter-server", "mode": "sync", "workers": 2}), "s.toml")
    candidates, left = candidates_of(scenario)
    assert [candidate.name for candidate in candidates] == ["compute", "bandwidth between nodes", "latency between nodes"]
    assert left == {"server time per gradient": "is 0 in the scenario, which no factor changes: set workload.server.base_s to fit it"}
    twice = with_factors(scenario, candidates[:1], [2.0])
    assert twice.workload.compute_s(10) == pytest.approx(2 * scenario.workload.compute_s(10))


def test_the_refitted_scenario_loads_and_says_what_the_points_leave_open(tmp_path):
    table = given(
        workload={
            "jitter": JITTER,
            "uncertainty": {"parameters": ["apply_s", "forward.base_s"], "draws": [[4e-4, 9e-4], [6e-4, 11e-4]]},
        }
    )
    settings = measured(table, SLOWER, (1, 2, 4))
    base = base_of(table)
    found = refit(settings, at(table, settings))
    new = refitted_table(table, base, found.fitted, about="a test")
    (tmp_path / "new.toml").write_text(tomlkit.dumps(new))
    loaded = load_scenario(tmp_path / "new.toml", [("strategy.workers", 3)])
    assert [loaded] == at({**new, "strategy": RING}, [Setting(workers=3, throughput=(1.0,), line=2)])
    compute = found.fitted.factors["compute"]
    assert loaded.value_at("workload.forward.base_s") == pytest.approx(1e-3 * compute, rel=1e-6)
    drawn = loaded.workload.uncertainty
    assert drawn is not None
    columns = dict(zip(drawn.parameters, zip(*drawn.draws, strict=True), strict=True))
    assert set(columns["apply_s"]) == {4e-4, 6e-4}
    middle = sorted(columns["forward.base_s"])[len(drawn.draws) // 2]
    assert middle == pytest.approx(1e-3 * compute, rel=0.02)
    assert loaded.workload.provenance["refit"] == "a test"


def test_paths_stay_right_in_another_folder(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    table = given()
    (home / "load.toml").write_text(tomlkit.dumps(table["workload"]))
    own = {**table, "workload": {"use": "load.toml"}}
    settings = measured(table, SLOWER, (1, 2))
    base = base_of(own, home)
    scenarios = scenarios_at(own, settings, source="s.toml", points=POINTS, beside=home)
    new = refitted_table(own, base, refit(settings, scenarios).fitted, beside=home)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "new.toml").write_text(tomlkit.dumps(new))
    monkeypatch.chdir(elsewhere)
    assert load_scenario("new.toml", [("strategy.workers", 3)]).workload.compute_s(10) > base.workload.compute_s(10)


CUT = {
    "workload": {
        "name": "small", "precision": "mixed_bfloat16", "batch_per_replica": 4,
        "transformer": {"layers": 4, "hidden": 512, "heads": 8, "sequence": 512, "vocabulary": 8192},
    },
    "cluster": {"use": "dgx-a100-80gb"},
    "strategy": {"kind": "hybrid", "workers": 8, "pipeline": 2, "tensor": 2, "stages": "even"},
    "training": {"micro_batches": 4},
    "run": {"steps": 4, "warmup_steps": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("sequence", "changes", "moved"),
    [
        (512, {"practice.launch_s": 2.5e-4}, "launching of kernels"),
        (8192, {"practice.decoder_matrix_share": 0.5, "practice.fused_elementwise_share": 0.4}, "compute"),
    ],
)
def test_one_run_of_a_computed_model_moves_its_constants_which_go_with_it_to_other_layouts_and_devices(sequence, changes, moved):
    table = apply_settings(
        CUT, [("workload.transformer.sequence", sequence), ("workload.transformer.hidden", 512 * (sequence // 512) ** 0.5)]
    )
    exact = [(key, value) for key, value in changes.items()]
    settings = measured(table, dict(exact), (8,))
    found = refit(settings, at(table, settings))
    assert set(found.fitted.factors) == {moved}
    refitted = refitted_table(table, base_scenario(table, settings, source="s.toml", beside=None), found.fitted)
    for other in (("strategy.tensor", 1), ("training.micro_batches", 2), ("cluster.use", "dgx-h100")):
        true, told = (
            simulate(scenario_from_table(apply_settings(each, [other, *own]), "s.toml")).step_time_s.mean
            for each, own in ((table, exact), (refitted, []))
        )
        assert told == pytest.approx(true, rel=0.05)
