"""A calibration keeps to its budget of wall time: arithmetic, a fake clock and fake probes, whatever the speed of the machine."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.measurements import Truth, gamma_of, step_records, write_lines

import paceline
from calibrate.fit.step import fit_workload
from calibrate.fit.step_times import StepTable, fit_steps, widened
from calibrate.profiling import Remarks, plan_in, profile_runs
from simulator.base.errors import CalibrationError, InputError

pacing: Any = importlib.import_module("calibrate.probes.pacing")
step: ModuleType = importlib.import_module("calibrate.probes.step")

TARGET = f"{Path(paceline.__file__).parent.parent / 'models' / 'keras' / 'mlp.py'}:build"
LOOK = {"wall_s": 1.0, "cores": 2, "own_s": 1.0, "others_s": 0.5, "stolen_s": 0.0, "switches": 1, "throttled": 0, "clock_hz": None}
Costs, plan_of = pacing.Costs, pacing.plan_of


# -- what there is time for ----------------------------------------------------------------


def test_short_steps_are_all_measured() -> None:
    plan = plan_of(Costs(10.0, 0.01, 12.0, 11.0), 180.0, 3, 10, 50)
    assert (plan.processes, plan.rounds, plan.steps, plan.whole) == (3, 10, 50, True)
    assert plan.total_s == pytest.approx(3 * (10.0 + 0.01 * 60 + 12.0))
    assert plan.until_s == pytest.approx(10.0 + (180.0 - 3 * 22.0) / 3)  # disturbed rounds have all of the rest


@pytest.mark.parametrize(
    ("once_s", "planned"),
    [(0.5, (3, 10, 50)), (1.0, (3, 10, 40)), (2.0, (3, 8, 16)), (3.0, (3, 5, 10)), (5.0, (3, 3, 6)), (9.0, (2, 2, 4)), (30.0, (2, 2, 4))],
)
def test_longer_steps_take_steps_then_rounds_then_a_process(once_s: float, planned: tuple[int, int, int]) -> None:
    plan = plan_of(Costs(10.0, once_s, 60.0, 0.0), 180.0, 3, 10, 50)
    assert (plan.processes, plan.rounds, plan.steps) == planned
    assert not plan.whole
    assert (plan.total_s <= 180.0) == (once_s < 30.0)


@given(st.floats(0.1, 60.0), st.floats(1e-4, 100.0), st.floats(0.0, 60.0), st.floats(1.0, 3600.0), st.integers(1, 5), st.integers(1, 12))
def test_a_plan_fits_or_is_the_least_that_says_anything(
    begun_s: float, once_s: float, rest_s: float, budget_s: float, processes: int, rounds: int
) -> None:
    plan = plan_of(Costs(begun_s, once_s, rest_s, rest_s / 2), budget_s, processes, rounds, 5 * rounds)
    least = min(2, processes), 2, 4
    assert plan.total_s <= budget_s * (1 + 1e-9) or (plan.processes, plan.rounds, plan.steps) == least
    assert plan.processes <= processes
    assert plan.whole or plan.steps >= 2 * plan.rounds
    # what later processes plan for themselves is no more processes
    later = plan_of(Costs(begun_s, once_s), budget_s, processes, rounds, 5 * rounds, plain=True)
    assert later.processes == processes


def test_a_warm_up_looks_at_fewer_steps_where_they_are_long() -> None:
    limit_s = pacing.warm_up_limit_s(180.0, 3, 3)
    assert limit_s == pytest.approx(6.67, abs=0.01)
    assert [pacing.window_of(seconds, limit_s) for seconds in (1e-3, 0.9, 2.0, 60.0)] == [5, 3, 1, 1]


# -- rounds, by a fake clock ---------------------------------------------------------------


class Machine:
    """A clock that steps move on, and other load in some rounds."""

    def __init__(self, disturbed: Callable[[int], bool]) -> None:
        self.now_s, self.rounds, self.disturbed, self.told = 0.0, 0, disturbed, list[dict[str, Any]]()

    def clock(self) -> SimpleNamespace:
        return SimpleNamespace(perf_counter=lambda: self.now_s, process_time=lambda: self.now_s, sleep=self.spend)

    def spend(self, seconds: float) -> None:
        self.now_s += seconds

    def judge(self, _: Any) -> Any:
        def end(turn: int, means: dict[int, float]) -> str:
            self.rounds += 1
            return "other load took 48% of CPU time" if self.disturbed(turn) else ""

        return SimpleNamespace(begin=lambda: None, end=end, all_rounds=lambda: None)


def timed(monkeypatch: pytest.MonkeyPatch, disturbed: Callable[[int], bool], left_s: float | None, *, accept: bool = False) -> Machine:
    """Rounds of 16 s: of two batch sizes two steps each, and one that is not timed, of 1 s and 1.67 s."""
    machine = Machine(disturbed)
    monkeypatch.setattr(step, "time", machine.clock())
    monkeypatch.setattr(step.machine, "Judge", machine.judge)
    monkeypatch.setattr(step, "progress", lambda *_: None)
    monkeypatch.setattr(step, "tell", lambda event, **fields: machine.told.append({"event": event, **fields}))
    arguments = SimpleNamespace(batches="16,32", rounds=4, steps=8, repeats=5, accept=accept)
    timing = step.Timing(arguments, SimpleNamespace(write=lambda *_, **__: None), SimpleNamespace(wait=lambda _: None))
    timing.time_plain({16: lambda: machine.spend(2.0), 32: lambda: machine.spend(10.0 / 3)}, 16, left_s)
    return machine


def test_disturbed_rounds_are_repeated_while_the_budget_lasts_and_said_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = timed(monkeypatch, lambda _: True, 200.0)
    assert 200.0 - 16.0 - 5.0 < busy.now_s <= 200.0 + 5.0
    assert busy.told == [{"event": "disturbed", "when": "round 1", "why": "other load took 48% of CPU time"}]
    passing = timed(monkeypatch, lambda turn: turn < 5, 200.0)
    assert (passing.rounds, passing.now_s <= 200.0) == (9, True)  # five that count for nothing, and the four that were wanted


def test_rounds_end_with_the_budget_but_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(monkeypatch, lambda _: False, 1000.0).rounds == 4
    assert timed(monkeypatch, lambda _: False, 49.0).rounds == 3
    assert timed(monkeypatch, lambda _: False, 1.0).rounds == 2


def test_nobody_waits_for_calm_rounds_where_disturbed_ones_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(monkeypatch, lambda _: True, 1000.0, accept=True).rounds == timed(monkeypatch, lambda _: True, None).rounds == 6


# -- processes, by a fake probe ------------------------------------------------------------


class Probes:
    """Processes that take some time each by a fake clock, and of which the first says what there is time for."""

    disturbed = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: list[float], planned: dict[str, Any] | None) -> None:
        self.asked: list[dict[str, str]] = []
        self.now_s, self.seconds, self.planned = 0.0, seconds, planned
        monkeypatch.setattr("calibrate.profiling.run_probe", self.run)
        monkeypatch.setattr("calibrate.profiling.time", SimpleNamespace(monotonic=lambda: self.now_s))

    def run(self, _probe: str, arguments: list[str], out: Path, _python: Any, _timeout: Any, _progress: Any, heard: Any) -> None:
        number = len(self.asked)
        self.asked.append({"plain": str("--plain" in arguments)} | dict(zip(arguments, [*arguments[1:], ""], strict=True)))
        records = step_records(Truth(rounds=3, steps_a_round=3), gamma_of(0.05), seed=number)
        if self.planned is not None:
            records.insert(2, {"kind": "plan", **self.planned})
        why = "other load took 48% of CPU time" if self.disturbed else ""
        records[-1:-1] = [{"kind": "load", "stage": "round", "round": turn, "why": why, **LOOK} for turn in range(3)]
        if heard is not None:
            heard({"event": "begun"})
        if heard is not None and number == 1:
            heard({"event": "disturbed", "when": "round 1", "why": "other load took 48% of CPU time"})
        write_lines(out, records)
        self.now_s += self.seconds[number]


def test_later_processes_have_what_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    probes = Probes(monkeypatch, [70.0, 50.0], {"processes": 2, "rounds": 3, "steps": 9, "whole": False})
    said: list[str] = []
    files = profile_runs(TARGET, "x", budget=180.0, folder=tmp_path, remark=said.append)
    assert [plan_in(file) is not None for file in files] == [True, True]
    assert [(each["--budget"], each["--runs-left"], each["plain"]) for each in probes.asked] == [
        ("180.0", "3", "False"),
        ("110.0", "1", "True"),
    ]
    assert said[0] == f"measuring {TARGET} for up to 3 min: 3 batch sizes, 3 runs of 10 rounds"
    assert len(said) == 2
    assert said[1].startswith("round 1 is disturbed: other load took 48% of CPU time; stop other programs here")


def test_a_third_process_is_left_out_where_no_time_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planned = {"processes": 3, "rounds": 10, "steps": 50, "whole": True}
    Probes(monkeypatch, [80.0, 80.0, 20.0], planned)
    assert len(profile_runs(TARGET, "x", budget=180.0, folder=tmp_path)) == 2
    Probes(monkeypatch, [60.0, 60.0, 60.0], planned)
    assert len(profile_runs(TARGET, "y", budget=180.0, folder=tmp_path)) == 3


def test_no_process_is_added_to_a_disturbed_one_when_the_budget_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Probes, "disturbed", True)
    planned = {"processes": 2, "rounds": 2, "steps": 4, "whole": False}
    for seconds, accept, count in ((200.0, False, 1), (200.0, True, 2), (90.0, False, 2)):
        Probes(monkeypatch, [seconds] * 2, planned)
        assert len(profile_runs(TARGET, f"{seconds}{accept}", budget=180.0, folder=tmp_path, accept=accept)) == count


def test_without_a_budget_all_is_measured_as_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    probes = Probes(monkeypatch, [900.0] * 3, None)
    assert len(profile_runs(TARGET, "x", folder=tmp_path)) == 3
    assert all("--budget" not in each for each in probes.asked)


def test_the_plan_is_said_in_words() -> None:
    said: list[str] = []
    told = {"event": "plan", "processes": 2, "rounds": 3, "steps": 6, "until_s": 90.0, "begun_s": 30.0, "everything_s": 1000.0}
    told["steps_s"] = {"16": 0.5, "64": 2.0}
    for more in ({"whole": True, "total_s": 150.0, "fits": True}, {"whole": False, "total_s": 170.0, "fits": True}):
        Remarks(said.append)(told | more)
    Remarks(said.append)(told | {"whole": False, "total_s": 500.0, "fits": False})
    assert said == [
        "steps of batch 16 and 64 take 500 ms and 2.0 s; about 2 min left",
        "steps of batch 16 and 64 take 500 ms and 2.0 s; 2 runs of 3 rounds fit, about 2.3 min left; `budget='18 min'` fits all",
        "steps of batch 16 and 64 take 500 ms and 2.0 s; even 2 runs of 3 rounds take longer than the budget, about 7.8 min left; "
        "smaller batch sizes take less",
    ]


def test_a_disturbance_is_said_once_and_what_follows_from_it() -> None:
    said: list[str] = []
    for accept in (False, True):
        remarks = Remarks(said.append, accept=accept)
        for when in ("the warm-up", "round 1"):
            remarks({"event": "disturbed", "when": when, "why": "other load took 48% of CPU time"})
    disturbed = "the warm-up is disturbed: other load took 48% of CPU time; stop other programs here"
    assert said == [f"{disturbed}; disturbed rounds are repeated within the budget", disturbed]


def test_a_budget_is_a_time() -> None:
    for budget in ("soon", "3 USD", 0, "-1 min"):
        with pytest.raises(InputError, match="`budget`"):
            paceline.calibrate("m.py:f", name="x", budget=budget)


# -- what fewer rounds leave open ----------------------------------------------------------


def table(rng: np.random.Generator, runs: int, rounds: int, steps: int) -> StepTable:
    """Processes that differ by 3% and rounds by 2%, and steps by 5%, around 1 s + 1 s a batch."""
    times: dict[int, list[Any]] = {1: [], 2: []}
    for _ in range(runs):
        process = 1.0 + 0.03 * rng.standard_normal()
        for _ in range(rounds):
            speed = process * (1.0 + 0.02 * rng.standard_normal())
            for batch, groups in times.items():
                groups.append((1.0 + batch) * speed * (1.0 + 0.05 * rng.standard_normal(steps)))
    splits = {batch: np.tile([0.3, 0.6, 0.1], (4, 1)) for batch in times}
    return StepTable(times, splits, tuple(number for number in range(runs) for _ in range(rounds)))


def intervals(runs: int, rounds: int, steps: int, tries: int = 60) -> tuple[float, float]:
    """Median width of the 90% interval of a step's level, and how often it holds the true one."""
    widths, held = [], 0
    for seed in range(tries):
        rng = np.random.default_rng(seed)
        draws = fit_steps(table(rng, runs, rounds, steps), rng, few_runs=True).draws
        assert draws is not None
        # a step of batch 1.5, of which the truth is 2.5 s
        low, high = np.quantile(draws @ np.array([1.0, 1.5, 1.0, 1.5, 1.0]), [0.05, 0.95])
        widths.append((high - low) / 2.5)
        held += bool(low <= 2.5 <= high)
    return float(np.median(widths)), held / tries


@pytest.mark.slow
def test_fewer_runs_and_rounds_widen_the_interval_and_hold_the_truth_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrate.fit.step_times._DISTRIBUTIONS_DRAWN", 2)
    monkeypatch.setattr("calibrate.fit.step_times.DRAWS", 100)
    (full, held), (fewer, held_of_fewer), (two, held_of_two) = intervals(3, 10, 5), intervals(3, 2, 2), intervals(2, 3, 2)
    assert full < fewer < two
    assert min(held_of_fewer, held_of_two) >= held - 0.05


def test_draws_of_two_runs_are_widened_and_of_three_and_one_are_not() -> None:
    draws, levels = [[1.0, 2.0], [1.1, 2.2]], [1.0, 1.1]
    assert widened(draws, levels, 3) == widened(draws, levels, 1) == draws
    assert np.log(widened(draws, levels, 2)[1]) - np.log(draws[0]) == pytest.approx([2.497 * np.log(1.1)] * 2, rel=1e-3)


def test_a_file_says_what_the_budget_had_time_for(tmp_path: Path) -> None:
    files = []
    for run in range(2):
        rows = step_records(Truth(rounds=3, steps_a_round=2), gamma_of(0.05), seed=run)
        rows.insert(2, {"kind": "plan", "processes": 2 - run, "rounds": 3, "steps": 6, "whole": False})
        files.append(tmp_path / f"{run}.ndjson")
        write_lines(files[-1], rows)
    workload = fit_workload(files, "short")
    again = fit_workload(files, "short")
    assert (workload.uncertainty, workload.fit, workload.jitter_draws) == (again.uncertainty, again.fit, again.jitter_draws)
    assert workload.provenance["budget"].startswith("time for 2 runs of 3 rounds")


def test_disturbed_rounds_that_were_repeated_do_not_count_against_those_that_were_wanted(tmp_path: Path) -> None:
    """Of 20 rounds 16 were disturbed: too many without a budget, and the four that it planned with one."""
    rows = step_records(Truth(rounds=20, steps_a_round=5), gamma_of(0.05))
    rows[-1:-1] = [{"kind": "load", "stage": "round", "round": turn, "why": "busy", **LOOK} for turn in range(16)]
    write_lines(tmp_path / "without.ndjson", rows)
    with pytest.raises(CalibrationError, match="16 of 20 rounds were disturbed"):
        fit_workload(tmp_path / "without.ndjson", "x")
    rows.insert(2, {"kind": "plan", "processes": 1, "rounds": 4, "steps": 20, "whole": True})
    write_lines(tmp_path / "with.ndjson", rows)
    assert "16 of 20 rounds" in fit_workload(tmp_path / "with.ndjson", "x").provenance["left_out"]
