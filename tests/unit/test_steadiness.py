"""What is steady of a recorded run, by runs of which it is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrate.recorded.run import Each, Growing, RecordedRun
from calibrate.recorded.steadiness import Steadiness, steadiness_of

Array = NDArray[np.float64]


def run_of(
    times: Sequence[float] | Array, marks: dict[int, tuple[str, float]] | None = None, each: Each = "step", clock: bool = False
) -> RecordedRun:
    growing = Growing("run", "table", each=each)
    now_s = 0.0
    for row, time_s in enumerate(times):
        if marks and row in marks:
            growing.mark(*marks[row])
        now_s += float(time_s)
        growing.add(row + 1, float(time_s), end_s=now_s if clock else np.nan)
    return growing.run()


def steady_times(count: int, seed: int = 1, shape: float = 100.0, persistence: float = 0.0) -> Array:
    """Gamma draws around 0.1 s that stay, with the chance ``persistence``, what they were."""
    rng = np.random.default_rng(seed)
    times = rng.gamma(shape, 0.1 / shape, count)
    for row in np.flatnonzero(rng.random(count) < persistence):
        if row:
            times[row] = times[row - 1]
    return times


def rows(found: Steadiness, why: str) -> list[int]:
    return [row for apart in found.apart if apart.why == why for row in apart.rows.tolist()]


def test_the_first_steps_are_set_apart() -> None:
    times = steady_times(200)
    times[:3] = 5.0, 0.8, 0.4
    found = steadiness_of(run_of(times))
    assert rows(found, "first") == [0, 1, 2]
    assert found.steady is not None
    assert found.steady.rows == 197
    assert found.mean_s(found.steady) == pytest.approx(times[3:].mean())
    assert found.remarks[0].startswith("3 steps at the beginning")
    assert "(5.90 s " in found.remarks[0]


def test_each_process_and_each_epoch_has_a_first_step() -> None:
    times = steady_times(200)
    found = steadiness_of(run_of(times, {50: ("epoch", np.nan), 100: ("restart", np.nan), 150: ("evaluation", 3.0)}))
    assert (rows(found, "first"), rows(found, "epoch")) == ([0, 100], [50])


@pytest.mark.slow
@pytest.mark.parametrize("persistence", [0.0, 0.6])
def test_a_steady_run_is_one_level(persistence: float) -> None:
    several = sum(len(steadiness_of(run_of(steady_times(600, seed, 25.0, persistence))).levels) > 1 for seed in range(100))
    assert several <= 2  # one of 100 by the design of the test


@pytest.mark.parametrize("persistence", [0.0, 0.6])
def test_where_the_level_changes_is_found(persistence: float) -> None:
    times = steady_times(600, 3, 25.0, persistence)
    times[400:] *= 1.4
    first, second = steadiness_of(run_of(times)).levels
    assert second.first == pytest.approx(400, abs=10)
    assert second.median_s / first.median_s == pytest.approx(1.4, rel=0.08)


def test_steps_without_any_variation_change_where_they_change() -> None:
    assert [level.first for level in steadiness_of(run_of([0.084] * 200 + [0.15] * 200)).levels] == [0, 200]
    assert len(steadiness_of(run_of([0.084] * 400)).levels) == 1


@pytest.mark.parametrize("behind", [30, 45, 60, 100, 138])
def test_a_great_change_is_found_wherever_it_lies(behind: int) -> None:
    """Also where few steps are behind it, and a stretch that holds it seems to persist."""
    times = steady_times(150 + behind, 3, 5000.0)
    times[150:] *= 2.5
    assert [level.first for level in steadiness_of(run_of(times)).levels] == [0, pytest.approx(150, abs=2)]


def test_a_run_that_drifts_has_no_steady_part() -> None:
    found = steadiness_of(run_of(steady_times(2000) * np.exp(np.linspace(0, 3, 2000))))
    assert found.steady is None
    assert "level of its steps changes" in found.why_not


def test_a_short_run_that_drifts_has_none_either() -> None:
    found = steadiness_of(run_of(0.05 * 1.3 ** np.arange(40.0)))
    assert found.steady is None
    assert "longer throughout" in found.why_not


def test_a_short_run_has_no_steady_part() -> None:
    found = steadiness_of(run_of(steady_times(8)))
    assert re.findall(r"\d+", found.why_not) == ["7", "10"]


def test_a_checkpoint_every_fifty_steps_is_found_and_told_apart() -> None:
    times = steady_times(500)
    times[49::50] += 1.5
    found = steadiness_of(run_of(times))
    (periodic,) = found.periodic
    assert (periodic.what, periodic.every, periodic.count, periodic.first_step) == ("long step", 50, 10, 50)
    assert periodic.extra_s == pytest.approx(1.5, rel=0.02)
    assert periodic.per_step_s == pytest.approx(0.03, rel=0.02)
    assert found.steady is not None
    assert found.mean_s(found.steady) == pytest.approx(0.1, rel=0.02)


@pytest.mark.slow
def test_long_steps_at_random_have_no_period_and_are_a_kind_of_their_own() -> None:
    hits = 0
    for seed in range(100):
        times = steady_times(500, seed)
        long = np.sort(1 + np.random.default_rng(1000 + seed).choice(499, 12, replace=False))
        times[long] += 1.5
        found = steadiness_of(run_of(times))
        hits += bool(found.periodic)
        if not found.periodic:
            assert found.rare is not None
            assert found.rare.rows.tolist() == long.tolist()
            assert found.rare.extras_s.sum() == pytest.approx(12 * 1.5, rel=0.02)
    assert hits <= 1


MIXED = [0.66, 16, 0.66, 0.65, 16, 0.66, 0.66, 0.65, 0.66, 0.65, 16, 0.66]


def test_a_rare_kind_of_steps_is_told_apart_with_its_cost() -> None:
    found = steadiness_of(run_of(MIXED))
    (level,) = found.levels
    assert (rows(found, "first"), rows(found, "rare")) == ([0], [1, 4, 10])
    assert found.mean_s(level) == pytest.approx(0.656, abs=0.001)
    assert found.error_s(level) < 0.003
    assert found.rare is not None
    assert found.rare.extras_s.mean() == pytest.approx(15.34)
    assert found.rare_per_step_s(level) == pytest.approx(3 * 15.34 / 11)
    assert found.rare.text.startswith("3 steps of 11 (2, 5 and 11) take 15.3 s longer than their neighbours, all about equally long")
    assert f"{found.rare.text}: listed separately" in found.remarks


@pytest.mark.parametrize(
    ("places", "extras_s", "looks"),
    [
        ([3, 9, 14], [2.0, 1.0, 0.5], "at the beginning"),
        ([33, 91, 140, 163], [2.0, 2.0, 2.01, 1.99], "all about equally long"),
        ([33, 91, 140, 163], [2.0, 0.5, 4.0, 1.0], "of different lengths"),
    ],
)
def test_what_rare_steps_look_like(places: list[int], extras_s: list[float], looks: str) -> None:
    times = steady_times(200)
    times[places] += extras_s
    rare = steadiness_of(run_of(times)).rare
    assert rare is not None
    assert looks in rare.text


def test_rare_steps_that_wait_for_input_are_told_by_it() -> None:
    times, growing = steady_times(200), Growing("run", "table")
    times[[33, 91, 140]] += 2.0, 0.5, 4.0
    for place, time_s in enumerate(times.tolist()):
        growing.add(place + 1, time_s, input_s=max(time_s - 0.2, 0.001))
    rare = steadiness_of(growing.run()).rare
    assert rare is not None
    assert "wait for input" in rare.text


@pytest.mark.slow
@pytest.mark.parametrize("law", [lambda rng, count: rng.lognormal(-2.0, 0.5, count), lambda rng, count: 0.01 + rng.exponential(0.1, count)])
def test_the_tail_of_one_law_is_no_rare_kind(law: Callable[[np.random.Generator, int], Array]) -> None:
    runs = [steadiness_of(run_of(law(np.random.default_rng(seed), (30, 100, 600)[seed % 3]))) for seed in range(60)]
    assert sum(found.rare is not None for found in runs) <= 1


def test_what_a_source_marks_is_periodic_by_its_name() -> None:
    marks = dict.fromkeys(range(40, 400, 40), ("checkpoint", 2.0))
    (periodic,) = steadiness_of(run_of(steady_times(400), marks)).periodic
    assert (periodic.what, periodic.every, periodic.extra_s, periodic.first_step) == ("checkpoint", 40, 2.0, 40)


def test_persistence_is_that_of_the_steps_whatever_their_level() -> None:
    times = steady_times(3000, 5, 25.0, 0.6)
    times[1500:] *= 1.5
    assert steadiness_of(run_of(times)).persistence == pytest.approx(0.6, abs=0.08)
    assert steadiness_of(run_of(steady_times(3000))).persistence == 0.0


@pytest.mark.slow
def test_the_error_of_a_mean_grows_with_persistence() -> None:
    """Against the spread of the means of many runs."""
    means, errors = [], []
    for seed in range(150):
        found = steadiness_of(run_of(steady_times(400, seed, 25.0, 0.6)))
        assert found.levels
        means.append(found.mean_s(found.levels[0]))
        errors.append(found.error_s(found.levels[0]))
    assert np.median(errors) == pytest.approx(np.std(means), rel=0.2)


def test_clocks_that_jump_are_marked() -> None:
    times = steady_times(100)
    times[[20, 30]] = -3.0, 0.0
    times[60] = 7200.0
    found = steadiness_of(run_of(times))
    assert (rows(found, "clock"), rows(found, "pause")) == ([20, 30], [60])
    assert found.steady is not None
    assert found.mean_s(found.steady) == pytest.approx(0.1, rel=0.05)
    said = " ".join(found.remarks)
    assert "2 steps without a time" in said
    assert "1 step that paused" in said


def test_a_run_without_any_time_says_so() -> None:
    assert "no step" in steadiness_of(run_of([0.0] * 20)).why_not


def test_milliseconds_read_as_seconds_are_told_by_the_prediction() -> None:
    times = steady_times(50) * 1000
    assert steadiness_of(run_of(times)).doubts == ()
    (doubt,) = steadiness_of(run_of(times), expected_s=0.12).doubts
    assert "milliseconds" in doubt
    (doubt,) = steadiness_of(run_of(times / 1e6), expected_s=0.12).doubts
    assert doubt.index(" seconds ") < doubt.index("milliseconds")
    assert steadiness_of(run_of(times), expected_s=30.0).doubts == ()


def test_milliseconds_read_as_seconds_are_told_by_the_files_own_clock() -> None:
    growing = Growing("run", "table")
    for row, time_s in enumerate(steady_times(50)):
        growing.add(row + 1, time_s * 1000, end_s=row * 0.1)
    (doubt,) = steadiness_of(growing.run()).doubts
    assert "100 ms" in doubt
    assert "milliseconds" in doubt
    assert steadiness_of(run_of(steady_times(50), clock=True)).doubts == ()


def test_means_of_intervals_have_no_first_step_unless_it_is_long() -> None:
    times = steady_times(40)
    assert rows(steadiness_of(run_of(times, each="interval")), "first") == []
    times[0] = 0.5
    assert rows(steadiness_of(run_of(times, each="interval")), "first") == [0]
