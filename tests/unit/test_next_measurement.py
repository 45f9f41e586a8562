"""What to measure next: the command that suits each scenario, and the width that it promises."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import paceline
from paceline.answers import next_of
from paceline.tables import measurements_table, width_table
from simulator import load_scenario, simulate
from simulator.memory import largest_batch
from simulator.resolve.measured_defaults import COMPUTE
from simulator.resolve.resolve import alone_scenario, resolve
from simulator.results.inadequacy import discrepancy_of
from simulator.results.next_measurement import commands_of, width_of
from simulator.results.results import Result

SHORT = [("run.steps", 12), ("run.warmup_steps", 3)]


def simulated(name: str, **settings: object) -> Result:
    return simulate(load_scenario(name, [*SHORT, *((key.replace("__", "."), value) for key, value in settings.items())]))


def commands(result: Result) -> list[str]:
    return [its.command.split(" --")[0].removeprefix("paceline ") for its in width_of(result).measure_next]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("sync-ps", "paceline calibrate-server --peer HOST:PORT --name my-ethernet-25g --cluster ethernet-25g"),
        (
            "pipeline",
            "paceline calibrate MODEL.py:FUNCTION --name my-bert-base --batch 16,32,64 --layers --precision mixed_float16",
        ),
    ],
)
def test_the_first_command_is_that_of_what_is_known_least(name: str, first: str) -> None:
    found = width_of(simulated(name)).measure_next
    assert found[0].command == first
    assert not found[0].at_best
    assert found[0].left < 0.9
    assert [its.at_best for its in found] == sorted(its.at_best for its in found)


@pytest.mark.slow
def test_rdma_is_measured_by_no_command() -> None:
    assert "calibrate-link" not in commands(simulated("rails-sharp"))


def test_what_was_measured_is_measured_with_more_processes() -> None:
    result = simulated("ring", **{"cluster.basis": "measured", "discrepancy": {}, "strategy.workers": 2})
    line = next(its.command for its in width_of(result).measure_next if its.command.startswith("paceline calibrate MODEL"))
    assert line.endswith("--runs 12")  # four times the 3 of the workload's provenance


def test_own_runs_are_the_best_case_and_halve_what_the_model_is_off_by() -> None:
    own = {"discrepancy": {"compute": {"at": 0.5}}}
    result = simulated("ring", **own)
    last = width_of(result).measure_next[-1]
    assert last.at_best
    assert last.command.startswith("paceline validate SCENARIO.toml --measured points.csv --refit")
    assert last.left == pytest.approx(0.5, abs=0.05)  # nearly all of the width is the model's


def test_times_without_uncertainty_are_to_be_measured_and_no_width_is_promised(scenario) -> None:
    result = simulate(scenario())
    assert width_of(result).measure_next == ()
    assert next_of(result).endswith("--batch 5,10,20` (the workload's times have no uncertainty yet)")
    assert not width_table(result).rows
    assert not measurements_table(result).rows


def test_shares_and_promises_agree_with_the_interval() -> None:
    result = simulated("async-ps")
    made_of = width_of(result).contributions
    assert math.fsum(its.first.mean for its in made_of) <= 1.0 + 1e-9
    assert [its.total.mean for its in made_of] == sorted((its.total.mean for its in made_of), reverse=True)
    model = math.fsum(its.first.mean for its in made_of if its.kind == "model")
    assert model == pytest.approx(result.scatter.shares[0], abs=1e-9)
    chance = next(its for its in made_of if its.kind == "chance")
    assert chance.first.mean == pytest.approx(result.scatter.shares[2], abs=1e-9)
    now = result.throughput_samples_per_s
    for its in width_of(result).measure_next:
        then = its.throughput_samples_per_s
        assert now.low <= then.low < now.mean < then.high <= now.high
        assert its.left == pytest.approx(math.log(then.high / then.low) / math.log(now.high / now.low))
        assert its.narrows
        assert its.rests_on


def test_it_is_said_in_a_sentence_and_in_tables() -> None:
    result = simulated("sync-ps")
    assert next_of(result).startswith(f"`{width_of(result).measure_next[0].command}` (interval ")
    for name in ("ring", "input-bound"):  # less than a tenth of the width rests on what the interval leaves out
        runs = next_of(simulated(name, **{"run.steps": 100}), name)
        assert runs.startswith(f"time 9 runs on up to 8 workers, then: `paceline validate {name} --measured points.csv --refit`")
        assert ("as wide" in runs) == (name == "ring")
    table = width_table(result)
    assert table.rows[0][0] == width_of(result).contributions[0].name
    assert len(measurements_table(result).rows) == len(width_of(result).measure_next)


def test_shares_that_few_runs_cannot_tell_are_called_so() -> None:
    result = simulated("backup-workers")
    unsure = [its for its in width_of(result).contributions if not its.first.told]
    assert unsure, "host costs contribute most here, and 19 runs do not tell which of the two"
    assert "too few runs" in " ".join(str(row[2]) for row in width_table(result).rows)


@pytest.mark.slow
def test_a_report_has_what_the_width_is_made_of(tmp_path: Path) -> None:
    result = simulated("ring")
    page = paceline.report(result, tmp_path / "ring.html", tables=tmp_path / "tables", jobs=1).path.read_text(encoding="utf-8")
    assert "<h2>Sources of the interval’s width</h2>" in page
    assert "<bdi>model: compute</bdi>" in page
    assert width_of(result).measure_next[0].command in page
    written = (tmp_path / "tables" / "measurements.csv").read_text(encoding="utf-8")
    assert written.count("\n") == 1 + len(width_of(result).measure_next)
    assert (tmp_path / "tables" / "contributions.csv").read_text(encoding="utf-8").count("\n") == 1 + len(width_of(result).contributions)


def test_names_in_a_command_are_those_that_it_takes() -> None:
    result = simulated("noisy-neighbours", **{"cluster.name": "<b>our lab</b> & more"})
    line = next(its.command for its in width_of(result).measure_next if "calibrate-link" in its.command)
    assert line.endswith("--name my-b-our-lab-b-more")


def test_measuring_a_link_leaves_what_compute_is_off_by() -> None:
    scenario = resolve(load_scenario("async-ps", SHORT))
    measured = next(command.scenario for command in commands_of(scenario, {}) if "calibrate-link" in command.line)
    now, then = discrepancy_of(scenario), discrepancy_of(measured)
    assert now is not None
    assert then is not None
    assert then.compute == now.compute
    assert then.compute.per_doubling > 0
    assert then.communication.at <= now.communication.at


def test_no_command_measures_a_step_that_one_device_does_not_hold() -> None:
    """47 thousand million parameters fit on no device whole, and of 1.3 thousand million a small batch does."""
    too_large = resolve(load_scenario("experts", SHORT))
    assert largest_batch(alone_scenario(too_large)) == 0
    lines = [command.line for command in commands_of(too_large, {COMPUTE: 0.2})]
    assert not any(line.startswith("paceline calibrate MODEL") for line in lines)
    assert any(line.startswith("paceline validate") for line in lines)
    fits = resolve(load_scenario("fsdp", [*SHORT, ("workload.batch_per_replica", 64)]))
    most = largest_batch(alone_scenario(fits))
    assert most is not None
    assert 0 < most < 64
    line = next(command.line for command in commands_of(fits, {COMPUTE: 0.2}) if "calibrate MODEL" in command.line)
    batches = [int(batch) for batch in line.partition("--batch ")[2].split()[0].split(",")]
    assert max(batches) == most
    assert len(batches) >= 2, "calibrate refuses a single batch size"
