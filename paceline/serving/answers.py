"""What is worked out for a question, part by part, in processes that stand ready; each function is one part, and takes and gives data.

Results go on as bytes: the process that serves passes them from one of these functions to another and never looks inside.
"""

from __future__ import annotations

import math
import pickle
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from paceline.lengthy import Lengthy
from paceline.planning.answer import Plan
from paceline.planning.bounds import Ceilings
from paceline.planning.space import Line
from paceline.reporting.axes import series_colour
from paceline.reporting.content import Content, content_of
from paceline.reporting.figures import plain, timeline_figure
from paceline.reporting.render import render
from paceline.reporting.simulated import timeline_of
from paceline.reporting.timeline import Timeline
from paceline.serving.form import form_of
from paceline.serving.processes import going_on
from paceline.serving.question import Asked, Goal, Question, Served, asked_of, changed, loaded, problems_of, table_of_text
from simulator.base.errors import InputError, PacelineError
from simulator.base.text import clean, counted, format_rough_seconds, format_throughput
from simulator.base.validation_errors import quoted
from simulator.effort import effort_s
from simulator.resolve.resolve import resolve
from simulator.results.results import Result
from simulator.run import simulate
from simulator.scenario import Scenario

_LOOK_S = 0.25
"""Of one core, by the model of effort, for the first look at a configuration; of fewer steps it would be another run's beginning."""
ROUGH_S = 0.3
"""For each configuration of the first report."""
_WHOLE_S = 30.0
"""What of a configuration takes longer in full is shown as far as it was simulated."""
_FEWEST_STEPS, _FEWEST_REPLICATIONS = 20, 2
_STEPS_IN_TIME = 4


Planner: TypeAlias = Callable[..., Plan]
"""Such as :func:`paceline.plan`."""
Share: TypeAlias = Literal["look", "whole"] | tuple[int, int]
"""How much of a configuration is simulated: what a first look has time for, all, or so many replications of so many steps."""


@dataclass(frozen=True)
class Point:
    """A configuration of a curve.

    Attributes
    ----------
    count
        Workers, as the strategy counts them.
    ranks
        Replicas, or ranks where these are cut over devices.
    hash
        Of its scenario.
    scenario
        Pickled.
    bound
        Samples a second that none of its runs can exceed; None where nothing is known.
    effort_s
        What simulating it in full takes, by the model.
    """

    count: int
    ranks: int
    hash: str
    scenario: bytes = field(repr=False)
    bound: float | None
    effort_s: float


@dataclass(frozen=True)
class Curve:
    """Configurations that differ in their number of workers alone.

    Attributes
    ----------
    name
        Strategy and cluster.
    colour
        As the report draws it.
    points
        By number of workers.
    """

    name: str
    colour: str
    points: tuple[Point, ...]

    def at(self, count: int) -> Point:
        """That with a number of workers, or the nearest."""
        return min(self.points, key=lambda its: (abs(math.log(its.count / count)), its.count))


@dataclass(frozen=True)
class Prepared:
    """What is known of a question before anything is simulated.

    Attributes
    ----------
    text
        The scenario's, with the changes.
    problems
        The rules that it breaks, each with its dotted key.
    form
        Its form; None where it was not wanted.
    sliders
        What the sliders stand at.
    curves
        The scenario's own first.
    count
        Its own number of workers.
    replications, steps
        Of each configuration.
    left_out
        Sentences on what cannot be.
    sentence
        What the bounds say.
    """

    text: str
    problems: tuple[tuple[str, str], ...] = ()
    form: list[dict[str, Any]] | None = None
    sliders: dict[str, Any] = field(default_factory=dict)
    curves: tuple[Curve, ...] = ()
    count: int = 1
    replications: int = 0
    steps: int = 0
    left_out: tuple[str, ...] = ()
    sentence: str = ""


def prepared(question: Question, served: Served) -> Prepared:
    """Read a question, and say what follows without simulating: the form, what is wrong, and bounds."""
    text = question.text
    try:
        text = changed(question.text, question.changes)
        table = table_of_text(text)
    except InputError as error:
        return Prepared(text, tuple(problems_of(error, served)))
    try:
        asked = asked_of(table, question, served)
        curves = tuple(_curve(line, index) for index, line in enumerate(asked.lines))
    except InputError as error:
        return Prepared(text, tuple(problems_of(error, served)), form_of(table, None) if question.form else None)
    form = form_of(table, asked.scenario) if question.form else None
    own, run = curves[0].at(asked.count), asked.scenario.run
    return Prepared(
        text, (), form, _sliders(asked), curves, asked.count, run.replications, run.steps, asked.left_out, _bound_in_words(own, curves)
    )


def _curve(line: Line, index: int) -> Curve:
    ceilings: Ceilings | None = None
    points = []
    for count, scenario in line.scenarios.items():
        if (found := _known.get(scenario.hash)) is None:
            ceilings = ceilings or Ceilings(line.first)
            found = _point(count, scenario, ceilings)
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[scenario.hash] = found
        points.append(found)
    return Curve(clean(line.name), series_colour(index), tuple(points))


_known: dict[str, Point] = {}
"""Points that this process was asked for before, by their scenarios: while one slider moves most are the same again."""
_MOST_KNOWN = 2048


def _point(count: int, scenario: Scenario, ceilings: Ceilings) -> Point:
    bound = float(np.max(ceilings.of(scenario)))
    effort = effort_s(resolve(scenario))
    return Point(count, scenario.ranks, scenario.hash, pickle.dumps(scenario), bound if math.isfinite(bound) else None, effort)


def _bound_in_words(own: Point, curves: Sequence[Curve]) -> str:
    """What no run can exceed."""
    several = f" by {curves[0].name}" if len(curves) > 1 else ""
    workers = counted(own.count, "worker")
    if own.bound is None:
        return f"No bound is known for {workers}{several}; what is simulated follows."
    return f"No run with {workers}{several} trains more than {format_throughput(own.bound)} samples/s: a bound, without simulating."


def _sliders(asked: Asked) -> dict[str, Any]:
    """Keys that have sliders, with what they stand at; those that the scenario has."""
    scenario = asked.scenario
    load, strategy = scenario.workload, scenario.strategy
    found: dict[str, Any] = {}
    if strategy.count_key:
        found[f"strategy.{strategy.count_key}"] = asked.count
    if strategy.has_servers:
        found["strategy.servers"] = scenario.servers
    key = "batch_per_replica" if load.global_batch is None else "global_batch"
    found[f"workload.{key}"] = getattr(load, key)
    link = strategy.link
    if link:
        its = getattr(scenario.cluster, link)
        found[f"cluster.{link}.bandwidth"] = None if its is None else its.bandwidth_bytes_per_s * 8e-9
    return found


@dataclass(frozen=True)
class Look:
    """What a short simulation of a configuration tells.

    Attributes
    ----------
    mean, low, high
        Samples a second, with the 90% prediction interval.
    limit
        What limits it, in a few words.
    said
        How it was simulated, in words.
    """

    mean: float
    low: float
    high: float
    limit: str
    said: str


@dataclass(frozen=True)
class Simulated:
    """A configuration that was simulated.

    Attributes
    ----------
    result
        Pickled; None where it failed.
    look
        What it tells.
    failed
        Why there is none.
    """

    result: bytes | None = field(repr=False)
    look: Look | None
    failed: str = ""


def simulated(scenario: bytes, share: Share) -> Simulated:
    """Simulate a configuration: the whole of it, byte for byte as ``paceline simulate`` does, or a share."""
    given: Scenario = pickle.loads(scenario)  # noqa: S301 - of our own making
    if share == "look":
        bare = given.model_copy(update={"job": None})
        _, steps = share_of(effort_s(resolve(bare)), given.run.replications, given.run.steps, _LOOK_S)
        its = _with_share(bare, (min(_FEWEST_REPLICATIONS, given.run.replications), steps))
    else:
        its = given if share == "whole" else _with_share(given, share)
    try:
        result = simulate(its, progress=going_on)
    except PacelineError as error:
        return Simulated(None, None, str(error).splitlines()[0])
    return Simulated(pickle.dumps(result), _look(result, _share_in_words(given, its)))


def share_of(took_s: float, replications: int, steps: int, most_s: float = ROUGH_S) -> tuple[int, int]:
    """Replications and steps that take so long where all of them take ``took_s``: fewer replications first, then fewer steps."""
    fewer = min(replications, max(_FEWEST_REPLICATIONS, int(replications * most_s / max(took_s, 1e-9))))
    left_s = took_s * fewer / replications
    return fewer, steps if left_s <= most_s else min(steps, max(_FEWEST_STEPS, int(steps * most_s / left_s)))


def _with_share(scenario: Scenario, share: tuple[int, int]) -> Scenario:
    replications, steps = share
    run = scenario.run
    its = scenario.model_copy(update={"run": run.model_copy(update={"replications": replications})})
    if steps < run.steps and run.job_steps is None and its.job is None:
        return its.shortened(steps, min(run.warmup, steps // 4))
    return its


def _share_in_words(whole: Scenario, its: Scenario) -> str:
    """How much of a configuration was simulated."""
    runs, fewer = whole.run.replications, its.run.replications
    return (f"{fewer} of {runs:,} runs" if fewer < runs else f"{runs:,} runs") + (
        f" of {its.run.steps:,} steps" if its.run.steps < whole.run.steps else ""
    )


def _look(result: Result, said: str) -> Look:
    rate = result.throughput_samples_per_s
    return Look(rate.mean, rate.low, rate.high, result.bottleneck.label, said)


def drawn_timeline(scenario: bytes, name: str) -> dict[str, Any]:
    """Some steps of a configuration in time, for the report and to be drawn at once; only a ``note`` where there are none."""
    given: Scenario = pickle.loads(scenario)  # noqa: S301
    bare = given.model_copy(update={"job": None})
    short = bare.shortened(_STEPS_IN_TIME, min(given.run.warmup, 1))
    try:
        timeline = timeline_of(short, name)
    except PacelineError as error:
        return {"note": f"There is no timeline: {error}."}
    if timeline is None:
        return {"note": "There is no timeline: no step ended."}
    return {
        "timeline": pickle.dumps(timeline),
        "figure": plain(timeline_figure(timeline)),
        "sentence": timeline.sentence,
        "note": timeline.note,
    }


def reported(results: Sequence[bytes], asked: int, notes: Sequence[str], timeline: bytes | None, *, whole: bool) -> str:
    """The report of some results, about that of number ``asked``: a file, or what a page takes that has its styles and scripts."""
    return render(_content(results, asked, notes, timeline), whole=whole)


def _content(results: Sequence[bytes], asked: int, notes: Sequence[str], timeline: bytes | None) -> Content:
    loaded: list[Result] = [pickle.loads(one) for one in results]  # noqa: S301
    steps: Timeline | None = None if timeline is None else pickle.loads(timeline)  # noqa: S301
    return content_of(loaded, notes, timeline=steps, asked=loaded[asked].scenario_hash)


def planned(plan: Planner, question: Question, goal: Goal, served: Served) -> dict[str, Any]:
    """The plan that ``paceline plan`` would make from here, in sentences.

    Parameters
    ----------
    plan
        Makes it: :func:`paceline.plan`, which stands above what serves.
    question, goal, served
        From where, to what, and what is served.

    Raises
    ------
    InputError
        The scenario breaks a rule, or the goal cannot be read, or it takes too long.
    """

    def refuse(long: Lengthy) -> None:
        if long.limit_s is not None:
            raise InputError(f"{long.what}; {long.instead}, or plan on the command line")

    given: dict[str, Any] = goal.given()
    if "samples" in given:
        try:
            given["samples"] = float(given["samples"].replace(",", ""))
        except ValueError:
            raise InputError(f"samples: {quoted(given['samples'])} must be a number, such as 1e9") from None
    text = changed(question.text, question.changes)
    found = plan(
        loaded(table_of_text(text), served), strategies=question.strategies, clusters=question.clusters, workers=f"1..{question.most}",
        jobs=1, progress=lambda done, of, _: going_on(done, of), agree=refuse, **given,
    )  # fmt: skip
    return {"sentences": list(found.sentences), "notes": list(found.notes)}


def plan_command(question: Question, goal: Goal, name: str) -> str:
    """The command line that plans the same, from the scenario once it is saved."""
    lists = {"strategies": ",".join(question.strategies), "clusters": ",".join(question.clusters), "workers": f"1..{question.most}"}
    options = [f"--{option} {shlex.quote(text)}" for option, text in (*goal.given().items(), *lists.items()) if text]
    return " ".join(["paceline plan", shlex.quote(name), *options])


def is_long(point: Point) -> str:
    """Why a configuration is not simulated in full; nothing where it is."""
    if point.effort_s <= _WHOLE_S:
        return ""
    return (
        f"All runs with {counted(point.count, 'worker')} take about {format_rough_seconds(point.effort_s)} to simulate, which is left out "
        "here: save the scenario, and simulate it with `paceline simulate`"
    )


def warmed(served: Served) -> bool:
    """Do all of this once, so that nothing is imported or compiled while somebody waits."""
    found = prepared(Question(text=served.text, most=4), served)
    if found.curves:
        point = found.curves[0].at(found.count)
        done = simulated(point.scenario, "look")
        timeline = drawn_timeline(point.scenario, found.curves[0].name)
        if done.result is not None:
            reported([done.result], 0, (), timeline.get("timeline"), whole=False)
    return not found.problems
