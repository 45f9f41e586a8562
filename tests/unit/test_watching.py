"""A recorded run beside its prediction: who is called outside, since when, why, and what is said again."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline
from calibrate.observations import Predicted, half_width_s
from calibrate.recorded.run import Facts, Growing, RecordedRun
from paceline.diagnosing.causes import FOUND, OUTSIDE
from paceline.watching import Reason, Watch, Watched
from paceline.watching.verdict import Verdict, reasons_of, verdict_of
from paceline.watching.watch import WatchJournal, seen_now
from simulator.base.errors import InputError
from simulator.base.records import Record, Step
from simulator.results.results import Result

SCENARIO = {
    "workload": {
        "name": "plain",
        "batch_per_replica": 10,
        "forward": {"base": "9 ms", "per_sample": "100 us"},
        "backward": {"base": "28 ms", "per_sample": "200 us"},
        "jitter": {"kind": "gamma", "shape": 50, "persistence": 0.4},
        "run_to_run_cv": 0.04,
        "variables": [{"name": "w", "size": "1 MB", "creation_index": 0, "ready": 1.0}],
    },
    "cluster": {"use": "ethernet-25g"},
    "strategy": {"kind": "multi-worker-mirrored", "workers": 2},
    "run": {"steps": 40, "replications": 40, "warmup_steps": 0},
}


@pytest.fixture(scope="module")
def result() -> Result:
    return paceline.simulate(SCENARIO)


@pytest.fixture(scope="module")
def predicted(result: Result) -> Predicted:
    return Predicted.of(result, 0.99)


def run_of(times: Any, **columns: Any) -> RecordedRun:
    growing = Growing("run.ndjson", "steps file", facts=Facts(workers=2, batch=10, cores=4))
    for row, time_s in enumerate(times):
        growing.add(row + 1, float(time_s), **{name: float(values[row]) for name, values in columns.items() if name != "others_s"})
        if "others_s" in columns:
            growing.add_time_of_others(float(columns["others_s"][row]))
    return growing.run()


def times_around(mean_s: float, count: int = 400, seed: int = 0) -> Any:
    return np.random.default_rng(seed).gamma(50, mean_s / 50, count)


def reasons(result: Result, predicted: Predicted, run: RecordedRun, *others: RecordedRun) -> dict[str, Reason]:
    verdicts = [verdict_of(one, result, predicted) for one in (run, *others)]
    return {its.key: its for its in reasons_of(result.scenario, predicted, verdicts[0], verdicts)}


class Steps:
    """Keeps the step times of the first replica."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def record(self, record: Record) -> None:
        if isinstance(record, Step) and record.replica == 0:
            self.times.append(record.end_s - record.start_s)


@pytest.mark.slow
@pytest.mark.statistics
@pytest.mark.parametrize(("runs", "most"), [(20, 0), pytest.param(100, 3, marks=pytest.mark.long)])  # 1 is expected of 100
def test_a_run_as_predicted_is_almost_never_called_outside(result: Result, predicted: Predicted, runs: int, most: int) -> None:
    """Runs that the simulator draws itself, with other seeds, looked at after every 50 steps as they grow."""
    outside = 0
    for seed in range(100, 100 + runs):
        seen = Steps()
        paceline.simulate(SCENARIO, {"run.seed": seed, "run.replications": 2, "run.steps": 400}, observer=seen)
        outside += any(verdict_of(run_of(seen.times[:end]), result, predicted).was_outside for end in range(50, 401, 50))
    assert outside <= most


@pytest.mark.parametrize(
    ("mean_ms", "half_ms", "state"),
    [
        (711, 20, "inside"),
        (711, 90, "unclear"),  # known to less than a tenth, and worse than predicted
        (4230, 3830, "unclear"),
        (3730, 4830, "unclear"),
        (780, 20, "beyond"),
        (830, 20, "slower"),
        (600, 20, "faster"),
        (711, math.inf, "unclear"),
        (711, math.nan, "unclear"),
        (711, 0, "inside"),
    ],
)
def test_where_a_mean_lies(mean_ms: float, half_ms: float, state: str) -> None:
    predicted = Predicted(0.711, 0.667, 0.771, 0.643, 0.8, 0.7, 0.9, 0.99, 20)
    assert predicted.state(mean_ms / 1000, half_ms / 1000) == state


def test_a_mean_of_one_is_not_known() -> None:
    assert half_width_s(0.1, 1) == math.inf
    assert half_width_s(0.1, 10_000) == pytest.approx(0.3, rel=0.01)  # three standard deviations


def test_interval_of_other_coverage(result: Result, predicted: Predicted) -> None:
    ninety = Predicted.of(result, 0.9)
    assert (ninety.least_s, ninety.most_s) == pytest.approx((ninety.low_s, ninety.high_s))
    assert predicted.least_s < predicted.low_s < predicted.mean_s < predicted.high_s < predicted.most_s


def test_single_steps_prove_nothing_and_their_mean_does(result: Result, predicted: Predicted) -> None:
    times = times_around(predicted.mean_s)
    times[[100, 200]] *= 3
    assert verdict_of(run_of(times), result, predicted).state == "inside"
    assert verdict_of(run_of(times * 1.5), result, predicted).state == "slower"
    assert verdict_of(run_of(times * 0.5), result, predicted).state == "faster"


def test_since_which_step_it_left(result: Result, predicted: Predicted) -> None:
    times = times_around(predicted.mean_s)
    times[250:] *= 1.6
    verdict = verdict_of(run_of(times), result, predicted)
    assert verdict.since is not None
    assert verdict.before is not None
    assert verdict.since.first_step == pytest.approx(251, abs=5)
    assert (verdict.before.state, verdict.state) == ("inside", "slower")


def test_beyond_is_not_outside(result: Result, predicted: Predicted) -> None:
    between_s = (predicted.high_s + predicted.most_s) / 2
    verdict = verdict_of(run_of(between_s * (1 + 1e-4 * np.sin(np.arange(200)))), result, predicted)
    assert verdict.state == "beyond"
    assert not verdict.was_outside


def test_too_few_steps_wait(result: Result, predicted: Predicted) -> None:
    assert verdict_of(run_of([9.0] * 8), result, predicted).state == "unclear"


def slower_half(result: Result, predicted: Predicted, **columns: Any) -> dict[str, Reason]:
    times = times_around(predicted.mean_s)
    times[200:] *= 1.6
    halves = {name: np.where(np.arange(400) < 200, *pair) for name, pair in columns.items()}
    return reasons(result, predicted, run_of(times, **halves))


def test_the_causes_that_a_record_shows(result: Result, predicted: Predicted) -> None:
    mean_s = predicted.mean_s
    found = slower_half(result, predicted, input_s=(0.0, 0.6 * mean_s), cpu_s=(mean_s, mean_s))
    assert next(iter(found)) == "input"
    assert found["input"].cost_s == pytest.approx(0.6 * mean_s)
    assert "compute" in slower_half(result, predicted, compute_s=(mean_s, 1.6 * mean_s))
    assert "compute" in slower_half(result, predicted, cpu_s=(mean_s, 1.6 * mean_s))
    assert "waiting" in slower_half(result, predicted, cpu_s=(mean_s, mean_s))
    found = slower_half(result, predicted, others_s=(0.1 * mean_s, 3 * 1.6 * mean_s), cpu_s=(mean_s, mean_s))
    assert "3 of 4 cores in place of 0.1" in found["shared-cores"].text
    found = slower_half(result, predicted, sent_bytes=(1e6, 1e6), received_bytes=(1e6, 1e6))
    now, before = (float(value) for value in re.findall(r"at ([\d.]+) Mbit/s in place of ([\d.]+) Mbit/s", found["network"].text)[0])
    assert before / now == pytest.approx(1.6, rel=0.02)


def test_nothing_is_concluded_from_figures_that_may_mean_something_else(result: Result, predicted: Predicted) -> None:
    verdict = verdict_of(run_of(times_around(predicted.mean_s) * 1000), result, predicted)
    assert (verdict.state, verdict.was_outside) == ("unclear", False)
    assert "milliseconds" in verdict.doubts[0]


def test_a_source_that_says_otherwise_is_doubted(result: Result, predicted: Predicted) -> None:
    growing = Growing("run.ndjson", "steps file", facts=Facts(workers=8, batch=64, parameters=1_000_000))
    for row, time_s in enumerate(times_around(predicted.mean_s)):
        growing.add(row + 1, float(time_s))
    doubts = verdict_of(growing.run(), result, predicted).doubts
    assert len(doubts) == 3
    assert re.search(r" 8 workers,.* 2: .*strategy\.workers=8", doubts[0])
    assert re.search(r" 64 samples .* 10\b", doubts[1])
    assert re.search(r" 1,000,000 parameters,.* 250,000 ", doubts[2])


@pytest.mark.slow
def test_what_a_record_does_not_show_is_fitted(result: Result, predicted: Predicted, tmp_path: Path) -> None:
    """By the causes of a diagnosis, with chances that sum to no more than all."""
    path = tmp_path / "steps.csv"
    path.write_text("step_time_s\n" + "".join(f"{float(time_s)!r}\n" for time_s in times_around(predicted.mean_s) * 1.8))
    update = Watch(result, [path], coverage=0.99, jobs=1).look()
    found = update.reasons[str(path)]
    assert found
    assert all("probability" in reason.text and reason.cost_s is not None for reason in found)
    assert {reason.key for reason in found} <= {*FOUND, OUTSIDE.key}


def test_what_is_seen_at_present_is_the_last_level(result: Result, predicted: Predicted) -> None:
    times = times_around(predicted.mean_s)
    times[200:] *= 1.8
    seen = seen_now(result.scenario, [verdict_of(run_of(times, cpu_s=times / 2), result, predicted)])
    assert seen.step_s == pytest.approx(1.8 * predicted.mean_s, rel=0.05)
    assert seen.cpu_s == (pytest.approx(0.9 * predicted.mean_s, rel=0.05),)
    assert (seen.workers, seen.is_average) == (2, False)


def write_steps(path: Path, times: Any, computes: float = 0.5) -> None:
    """Steps of which a share is processor time, so that the record shows why they are longer."""
    path.write_text("step_time_s,cpu_s\n" + "".join(f"{float(time_s)!r},{computes * float(time_s)!r}\n" for time_s in times))


def looked(result: Result, path: Path, journal: Path | None = None) -> Watched:
    return Watch(result, [path], coverage=0.99, journal=journal).look()


def test_a_watch_that_is_begun_again_does_not_say_it_again(result: Result, predicted: Predicted, tmp_path: Path) -> None:
    path, journal = tmp_path / "steps.csv", tmp_path / "said.ndjson"
    times = times_around(predicted.mean_s, 600)
    times[200:400] *= 1.6
    write_steps(path, times[:150])
    assert looked(result, path, journal).events == ()
    write_steps(path, times[:300])
    first = looked(result, path, journal)
    assert len(first.events) == 1
    assert "since step 20" in first.events[0]
    assert first.left
    again = looked(result, path, journal)
    assert (again.events, again.left, again.state) == ((), True, "slower")
    assert again.reasons
    write_steps(path, times)
    (back,) = looked(result, path, journal).events
    assert "as predicted again since step 40" in back
    last = looked(result, path, journal)
    assert (last.events, last.left, last.state) == ((), True, "inside")
    kinds = [json.loads(line).get("event") for line in journal.read_text().splitlines()]
    assert kinds == [None, "left", "back"]


def test_a_journal_that_was_cut_off_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "said.ndjson"
    WatchJournal(path, {"scenario_hash": "a"}).say({"run": "r", "event": "left"})
    with path.open("a") as file:
        file.write('{"run": "r"}\n{"run": "r", "ev')
    again = WatchJournal(path, {"scenario_hash": "a"})
    assert again.said_of("r") == [{"run": "r", "event": "left"}]
    again.say({"run": "r", "event": "back"})
    assert [event["event"] for event in WatchJournal(path, {"scenario_hash": "a"}).events] == ["left", "back"]
    with pytest.raises(InputError, match=r"\(scenario_hash 'a'\)"):
        WatchJournal(path, {"scenario_hash": "b"})
    path.write_text("workers,throughput\n")
    with pytest.raises(InputError, match="not the journal"):
        WatchJournal(path, {"scenario_hash": "a"})


def test_a_watch_reads_what_is_new_alone_and_ends_with_the_training(result: Result, predicted: Predicted, tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    header = {"kind": "header", "format": "paceline-steps", "schema_version": 1, "workers": 2, "batch": 10}
    path.write_text("")
    watch = Watch(result, [path], coverage=0.99)
    assert (watch.look().state, watch.look().ended) == ("unclear", False)
    with path.open("a") as file:
        file.write(json.dumps(header) + "\n")
        for row, time_s in enumerate(times_around(predicted.mean_s, 50)):
            file.write(json.dumps({"kind": "step", "step": row + 1, "end_s": row * 1.0, "duration_s": time_s}) + "\n")
    update = watch.look()
    assert (update.step, update.state, update.ended) == (50, "inside", False)
    with path.open("a") as file:
        file.write('{"kind": "end", "end_s": 9}\n')
    assert watch.look().ended
    assert [update.ended for update in watch.updates(0.01)] == [True]


def test_what_lies_between_steps_is_told_beside_their_mean(result: Result, predicted: Predicted, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    times = np.full(200, predicted.mean_s)
    times[19::20] += 1.0
    write_steps(path, times)
    verdict: Verdict = looked(result, path).verdicts[0]
    assert verdict.state == "inside"
    assert verdict.whole_s == pytest.approx(predicted.mean_s + 1 / 20, rel=0.01)
    assert verdict.to_dict()["periodic"][0]["every"] == 20


def wide(predicted: Predicted) -> Predicted:
    """As of an assumed network."""
    low_s, high_s = predicted.mean_s / 3, predicted.mean_s * 3
    return replace(predicted, low_s=low_s, high_s=high_s, least_s=low_s, most_s=high_s)


def test_a_change_within_a_run_is_told_whatever_the_interval(result: Result, predicted: Predicted) -> None:
    times = times_around(predicted.mean_s, 2000)
    assert verdict_of(run_of(times), result, wide(predicted)).state == "inside"
    times[1000:] *= 1.5
    verdict = verdict_of(run_of(times), result, wide(predicted))
    assert verdict.since is not None
    assert (verdict.state, verdict.since.by, verdict.since.first_step) == ("slower", "change", pytest.approx(1001, abs=2))
    assert verdict.to_dict()["told_by"] == "change"
    # what became shorter within the interval is no fault, and what becomes as long again as the first steps is one beside those before
    times[1000:] /= 1.5**2
    assert [each.state for each in verdict_of(run_of(times), result, wide(predicted)).stretches] == ["inside", "inside"]


def test_a_run_that_was_slow_from_the_first_and_becomes_slower_is_told_again(result: Result, predicted: Predicted, tmp_path: Path) -> None:
    path, journal = tmp_path / "steps.csv", tmp_path / "said.ndjson"
    times = times_around(predicted.mean_s * 1.6, 600)
    times[200:] *= 1.5
    write_steps(path, times[:150])
    assert "from its first steps on" in looked(result, path, journal).events[0]
    write_steps(path, times[:400])
    (event,) = looked(result, path, journal).events
    assert re.search(r"since step 20[0-2], 5\d% slower than before", event)
    times[400:] /= 1.5  # better than it was said to be, and still slower: no news
    write_steps(path, times)
    assert looked(result, path, journal).events == ()


def test_a_level_is_held_against_those_that_went_well(result: Result, predicted: Predicted) -> None:
    times = times_around(predicted.mean_s, 900)
    times[300:600] *= 1.5
    verdict = verdict_of(run_of(times), result, wide(predicted))
    assert [(each.state, each.by) for each in verdict.stretches] == [("inside", "interval"), ("slower", "change"), ("inside", "interval")]
    assert verdict.was_outside
    assert verdict.since is None


def test_workers_that_go_alike_are_told_together_and_their_causes_once(result: Result, predicted: Predicted, tmp_path: Path) -> None:
    paths = [tmp_path / f"worker-{place}.csv" for place in range(4)]
    journal = tmp_path / "said.ndjson"
    for place, path in enumerate(paths):
        times = times_around(predicted.mean_s, 400, seed=place)
        times[200:] *= 150 / 84
        write_steps(path, times)
    update = Watch(result, paths, coverage=0.99, journal=journal).look()
    (event,) = update.events
    assert re.match(r"all 4 workers: since step 20[0-3], (7\d|8\d)% slower than before: ", event)
    assert len({update.reasons[str(path)] for path in paths}) == 1
    assert re.search(r"predicted; since step 20[0-3], .* slower than before$", update.sentence)
    assert [json.loads(line).get("run") for line in journal.read_text().splitlines()] == [None, *map(str, paths)]
    assert Watch(result, paths, coverage=0.99, journal=journal).look().events == ()
    # one goes on becoming slower, which is new of it alone
    times = np.concatenate([times, times_around(predicted.mean_s * 3, 200)])
    write_steps(paths[3], times)
    (event,) = Watch(result, paths, coverage=0.99, journal=journal).look().events
    assert event.startswith(f"{paths[3]}: ")


MIXED_S = [0.66, 16, 0.66, 0.65, 16, 0.66, 0.66, 0.65, 0.66, 0.65, 16, 0.66]


def test_few_steps_of_two_kinds_cannot_be_judged(result: Result, predicted: Predicted, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    write_steps(path, np.array(MIXED_S) * predicted.mean_s / 0.711)
    update = looked(result, path)
    assert (update.state, update.left) == ("unclear", False)
    assert update.mean_s == pytest.approx(0.656 / 0.711 * predicted.mean_s, rel=0.01)
    assert "8 steps, but 10 are needed" in update.sentence
    assert any("(2, 5 and 11)" in remark for remark in update.verdicts[0].steadiness.remarks)


def test_long_steps_at_random_are_their_own_cause_and_the_others_are_as_predicted(
    result: Result, predicted: Predicted, tmp_path: Path
) -> None:
    path = tmp_path / "steps.csv"
    times = times_around(predicted.mean_s)
    long = np.random.default_rng(7).random(len(times)) < 0.2
    times[long] = 22 * predicted.mean_s
    write_steps(path, times)
    update = looked(result, path)
    (verdict,) = update.verdicts
    assert verdict.now is not None
    assert (update.state, verdict.now.by, update.left) == ("slower", "rare", True)
    (reason,) = update.reasons[str(path)]
    assert reason.key == "between-steps"
    assert reason.cost_s == pytest.approx(21 * predicted.mean_s * long.mean(), rel=0.05)
    assert seen_now(result.scenario, [verdict]).step_s == pytest.approx(predicted.mean_s, rel=0.02)
    assert "with the long steps among them" in update.sentence
    states = {row[1]: row[-1] for row in update.table().rows}
    assert (states["step, mean"], states["with all between steps"]) == ("", "slower")


def test_a_figure_says_since_which_step_it_holds(result: Result, predicted: Predicted, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    times = times_around(predicted.mean_s)
    times[200:] *= 1.6
    write_steps(path, times)
    since = {row[1]: row[2] for row in looked(result, path).table().rows}
    assert since["step, mean"] == since["step, 95% below"] == pytest.approx(201, abs=3)
    assert since["with all between steps"] == 2
