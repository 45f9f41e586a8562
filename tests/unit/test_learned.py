"""What is said of what was learned: who is first, what is no difference, targets and their directions."""

from __future__ import annotations

import pytest
from support.testbed import FAST, as_measured, setting

import paceline
from paceline.learning.learned import Learned, LearnedPoint, LearnedRun, LearnedWay, Range, Target, TriedRate, widened_time
from paceline.learning.learning import contenders_of, recorded_of, wider_rate
from simulator.base.errors import InputError, ScenarioError

TARGET = Target.of("accuracy=0.95")
TRIED = TriedRate(rate=1.0, reached=0, diverged=0, time_s=None, last=None)
SCENARIO = paceline.load("async-ps")


def run(seed, reached, *, diverged=False, last=0.97):
    points = (LearnedPoint(time_s=0.0, samples=0, updates=0, metrics={"accuracy": 0.1}),
              LearnedPoint(time_s=9.0, samples=90, updates=9, metrics={"accuracy": last}))  # fmt: skip
    return LearnedRun(
        seed=seed,
        diverged=diverged,
        points=points,
        reached_s=reached,
        reached_samples=None if reached is None else 40,
        best=last,
        last=last,
    )


def way(name, *reached, usd=2.0, diverged=0):
    runs = tuple(run(seed, its, diverged=seed >= len(reached) - diverged) for seed, its in enumerate(reached))
    found = [its for its in reached if its is not None]
    times = Range.of(found)
    cost = None if usd is None else Range.of([its * usd / 3600 for its in found])
    low, high = widened_time(times, 0.9, 1.1) if times else (None, None)
    return LearnedWay(
        name=name, scenario=SCENARIO, rate=1.0, tried=(TRIED,), batch=8, epochs=20.0,
        workers=8, staleness=0.0, samples_per_s=100.0, usd_per_hour=usd,
        runs=runs, time_s=times, time_low_s=low, time_high_s=high, cost_usd=cost, samples=Range.of([40.0]) if found else None,
        last=Range.of([0.97]),
    )  # fmt: skip


def learned(*ways):
    return Learned(problem="p", samples=10, optimizer="SGD", epochs=20, stand_in=True, target=Target.of("accuracy=0.95"), ways=ways)


def test_the_first_and_the_cheapest():
    its = learned(way("ring", 10.0, 11.0, 12.0, usd=8.0), way("one device", 30.0, 31.0, 32.0, usd=1.0))
    assert its.first.name == "ring"
    assert its.cheapest.name == "one device"
    time, _, own, cost = its.answer.figures
    assert (time.mean, time.interval) == ("11.0 s", "10.0 to 12.0 s")
    assert its.answer.headline == "Ring reaches accuracy of at least 0.95 first, in 11.0 s."
    assert (its.answer.heading, its.answer.range_heading) == ("median", "range of 3 runs")
    assert (own.what, own.mean, cost.what) == ("cost", "$0.0244", "lowest cost")
    assert (cost.mean, cost.interval, cost.note) == ("$0.00861", "$0.00833 to $0.00889", "one device")
    assert its.sentences == its.answer.sentences


def test_ways_whose_runs_overlap_are_not_told_apart():
    never = way("ssp", None, None, None, None).model_copy(update={"staleness": 7.0})
    near = learned(way("sync", 10.0, 11.0, 14.0, 12.0), way("async", 13.5, 13.6, 16.0, 15.0), never)
    assert near.first.name == "sync"
    assert [its.name for its in near.beside(near.first)] == ["async"]
    assert near.answer.headline == "Sync and async tie at about 11.5 s; 1 of 3 never reach it."
    assert near.answer.confidence == "runs overlap with those of async"
    assert near.answer.next == "add `--rate 1,0.1`: x 0.1 may help ssp"


def test_ways_whose_runs_do_not_overlap_are_told_apart_however_wide_the_worse_scatters():
    far = learned(way("sync", 10.0, 10.5, 11.0, 10.2), way("async", 11.1, 12.0, 92.1, 11.3))
    assert far.beside(far.first) == []
    assert far.sentences[0].startswith("Sync reaches ")


def test_of_fewer_than_four_runs_the_medians_must_be_further_apart_than_either_scatters():
    assert learned(way("sync", 10.0, 10.5, 11.0), way("async", 11.9, 12.0, 12.1)).sentences[0].startswith("Sync reaches")
    near = learned(way("sync", 10.0, 10.5, 11.0), way("async", 11.1, 11.2, 12.3))
    assert [its.name for its in near.beside(near.first)] == ["async"]


def test_a_way_that_diverges_is_never_first():
    its = learned(way("async", 1.0, 1.0, 1.0, diverged=1), way("sync", 9.0, 9.5, 10.0))
    assert its.first.name == "sync"
    assert its.table().rows[0][4] == "3 of 3, 1 diverged"


def test_one_that_misses_the_target_is_never_first():
    its = learned(way("async", 1.0, 1.0, None), way("sync", 9.0, 9.5, 10.0), way("ssp", None, None, None, diverged=2))
    assert its.first.name == "sync"
    assert [row[4] for row in its.table().rows] == ["2 of 3", "3 of 3", "0 of 3, 2 diverged"]
    none = learned(way("async", 1.0, None, None), way("sync", None, None, None))
    assert none.first is None
    assert none.sentences[0].startswith("No way ")
    assert "async reaches it in 1 of 3 runs" in none.answer.confidence


def test_a_way_without_a_price_is_not_the_cheapest():
    assert learned(way("a", 1.0, 2.0, usd=None)).cheapest is None


def test_rows_and_tables():
    its = learned(way("a", 1.0, 2.0), way("b", None, None))
    assert its.to_frame()["way"].tolist() == ["a", "b"]
    assert its.to_frame()["reached"].tolist() == ["2 of 2", "0 of 2"]
    assert len(its.curves().rows) == 8
    assert Learned.model_validate_json(its.to_json()) == its
    assert "repr" not in repr(its)
    assert repr(its).startswith("<Learned: p ")


@pytest.mark.parametrize(
    ("text", "metric", "value", "at_most"),
    [("accuracy=0.95", "accuracy", 0.95, False), ("val_loss=0.1", "val_loss", 0.1, True), ("loss>=2", "loss", 2.0, False),
     ("f1 <= 1e-3", "f1", 1e-3, True)],
)  # fmt: skip
def test_targets(text, metric, value, at_most):
    its = Target.of(text)
    assert (its.metric, its.value, its.at_most) == (metric, value, at_most)
    assert its.reached_by(value)
    assert not its.reached_by(None)
    assert its.reached_by(value - 0.1) == at_most


@pytest.mark.parametrize("text", ["", "accuracy", "=1", "accuracy=high", "accuracy=nan", "a=1e999", "accuracy<0.9", "a b=1"])
def test_no_targets(text):
    with pytest.raises(InputError, match=r"such as accuracy=0\.95"):
        Target.of(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [("accuracy=95", "did you mean accuracy=0.95?"), ("sparse_categorical_accuracy=50", "did you mean"), ("recall=-1", "between 0 and 1"),
     ("auc=1e9", "auc must be between 0 and 1")],
)  # fmt: skip
def test_shares_lie_between_0_and_1(text, hint):
    with pytest.raises(InputError, match=hint.replace("?", r"\?")):
        Target.of(text)


def test_intervals_add_in_quadrature():
    low, high = widened_time(Range(median=10.0, low=10.0, high=10.0), 0.8, 1.25)
    assert (low, high) == pytest.approx((8.0, 12.5))
    low, high = widened_time(Range(median=10.0, low=8.0, high=12.5), 0.8, 1.25)
    assert low < 8.0
    assert high > 12.5
    assert low * high == pytest.approx(100)


def test_contenders():
    found = contenders_of("async-ps", [("strategy.workers", [4, 8])], ["single", "async-ps", "sync-ps/async-ps@25%"], [], None)
    assert [its.name for its in found] == [
        "single device", "async PS, 2 servers, workers 4", "async PS, 2 servers, workers 8",
        "sync PS, 2 servers for 25%, then async PS, 2 servers, workers 4",
        "sync PS, 2 servers for 25%, then async PS, 2 servers, workers 8",
    ]  # fmt: skip
    first, four, eight, switched, _ = found
    assert [its.strategy.kind for its, _ in first.parts] == ["single"]
    assert (four.parts[0][0].replicas, eight.parts[0][0].replicas) == (4, 8)
    (before, share), (after, rest) = switched.parts
    assert (before.strategy.mode, share, after.strategy.mode, rest) == ("sync", 0.25, "async", 0.75)
    own = contenders_of("ring", [], [], [("strategy.workers", 3)], None)
    assert [its.parts[0][0].replicas for its in own] == [3]


def test_a_key_that_no_way_has():
    with pytest.raises(InputError, match=r"`over` strategy\.wrokers: "):
        contenders_of("async-ps", [("strategy.wrokers", [4, 8])], ["single", "async-ps"], [], None)
    found = contenders_of("ring", [("strategy.compression.kind", ["fp16"])], [], [], None)
    assert len(found) == 1


@pytest.mark.parametrize("way", ["sync-ps/async-ps", "sync-ps/async-ps@2", "sync-ps/async-ps@x", "sync-ps@0.5", "nothing"])
def test_no_contenders(way):
    with pytest.raises(InputError, match="`strategies`"):
        contenders_of("async-ps", [], [way], [], None)


def test_a_combination_that_breaks_a_rule():
    with pytest.raises(ScenarioError, match=r"strategy\.workers"):
        contenders_of("async-ps", [("strategy.workers", [0])], ["async-ps"], [], None)


def test_real_runs_are_replayed_as_they_were_recorded(tmp_path):
    asked = setting("between-graph", 2, FAST)
    its = as_measured(tmp_path, asked, repeats=2)
    contender = recorded_of(its.file.path)
    assert contender.name.startswith("recorded: between-graph-")
    assert len(contender.recorded) == 2
    for schedule in contender.recorded:
        assert (schedule.workers, len(schedule)) == (2, 2 * asked.steps)
        assert schedule.time_s[-1] == pytest.approx(its.runs[0].seconds)
    assert contender.parts[0][0].replicas == 2
    together = as_measured(tmp_path, setting("sync", 2, FAST))
    with pytest.raises(InputError, match=r"`recorded`: .*sync"):
        recorded_of(together.file.path)


def _at(rate, reached):
    its = way("async PS", *[12.0] * reached, *[None] * (5 - reached))
    tried = TriedRate(rate=rate, reached=reached, diverged=0, time_s=12.0 if reached else None, last=0.97 if reached else 0.1)
    return its.model_copy(update={"rate": rate, "tried": (tried,)})


def test_rates_are_widened_until_the_best_lies_inside():
    tried = {1.0: _at(1.0, 0), 0.3: _at(0.3, 3)}
    assert wider_rate(tried, TARGET, 6) == 0.09
    assert wider_rate({**tried, 0.09: _at(0.09, 1)}, TARGET, 6) is None
    assert wider_rate(tried, TARGET, 2) is None  # no more may be tried
    assert wider_rate({1.0: _at(1.0, 0)}, TARGET, 6) is None  # one was asked for


def test_what_the_rate_that_was_asked_for_does_is_said_and_shown():
    best, asked = _at(0.3, 5), _at(1.0, 0)
    answer = learned(best.model_copy(update={"tried": (*asked.tried, *best.tried)}))
    assert [row[3] for row in answer.table().rows] == [0.3, 1.0]
    assert answer.answer.next == "add `--rate 1,0.3,0.03`: x 0.03 may help async PS"
