"""What is worked out for a question, part by part, in processes that stand ready; each function is one part, and takes and gives data.

Results go on as bytes: the process that serves passes them from one of these functions to another and never looks inside.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
from paceline.serving.question import Asked, Question, Served, asked_of, changed, problems_of, table_of_text
from simulator.base.errors import InputError, PacelineError
from simulator.base.text import clean, counted, format_number, format_rough_seconds
from simulator.effort import effort_s
from simulator.resolve.resolve import resolve
from simulator.results.results import Result
from simulator.run import simulate
from simulator.scenario import Scenario

__all__ = ["Curve", "Look", "Point", "Prepared", "Simulated", "drawn_timeline", "is_long", "prepared", "reported", "simulated", "warmed"]

_LOOK_S = 0.05
"""Of one core, by the model of effort, for the first look at a configuration."""
_ROUGH_S = 0.5
"""For each configuration of the first report."""
_WHOLE_S = 30.0
"""What of a configuration takes longer in full is shown as far as it was simulated."""
_FEWEST_STEPS, _FEWEST_REPLICATIONS = 20, 2
_STEPS_IN_TIME = 6


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
        Samples a second that no run of it can exceed on average; None where none is known.
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
    own = curves[0].at(asked.count)
    return Prepared(text, (), form, _sliders(asked), curves, asked.count, asked.left_out, _bound_in_words(own, curves))


def _curve(line: Line, index: int) -> Curve:
    ceilings = Ceilings(line.first)
    return Curve(
        clean(line.name),
        series_colour(index),
        tuple(_point(count, scenario, ceilings) for count, scenario in line.scenarios.items()),
    )


def _point(count: int, scenario: Scenario, ceilings: Ceilings) -> Point:
    bound = float(np.mean(ceilings.of(scenario)))
    effort = effort_s(resolve(scenario))
    return Point(count, scenario.ranks, scenario.hash, pickle.dumps(scenario), bound if math.isfinite(bound) else None, effort)


def _bound_in_words(own: Point, curves: Sequence[Curve]) -> str:
    """What no run can exceed."""
    several = f" by {curves[0].name}" if len(curves) > 1 else ""
    workers = counted(own.count, "worker")
    if own.bound is None:
        return f"No bound is known for {workers}{several}; what is simulated follows."
    return f"No run with {workers}{several} trains more than {format_number(own.bound)} samples/s on average: a bound, without simulating."


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


def simulated(scenario: bytes, share: str) -> Simulated:
    """Simulate a configuration: as much of it as a first ``look`` or a ``rough`` report has time for, or the ``whole`` of it.

    The whole is what ``paceline simulate`` does, byte for byte.
    """
    given: Scenario = pickle.loads(scenario)  # noqa: S301 - of our own making
    its, said = (given, "") if share == "whole" else _cut(given, _LOOK_S if share == "look" else _ROUGH_S, bare=share == "look")
    try:
        result = simulate(its, progress=going_on)
    except PacelineError as error:
        return Simulated(None, None, str(error).splitlines()[0])
    return Simulated(pickle.dumps(result), _look(result, said or f"{its.run.replications} runs"))


def _look(result: Result, said: str) -> Look:
    rate = result.throughput_samples_per_s
    return Look(rate.mean, rate.low, rate.high, result.bottleneck.label, said)


def _cut(scenario: Scenario, most_s: float, *, bare: bool) -> tuple[Scenario, str]:
    """A scenario with fewer replications, and if that is not enough fewer steps; for a first look without the job around its steps."""
    if bare and scenario.job is not None:
        scenario = scenario.model_copy(update={"job": None})
    run = scenario.run
    took_s = effort_s(resolve(scenario))
    if took_s <= most_s:
        return scenario, ""
    replications = min(run.replications, max(_FEWEST_REPLICATIONS, int(run.replications * most_s / took_s)))
    its = scenario.model_copy(update={"run": run.model_copy(update={"replications": replications})})
    took_s = effort_s(resolve(its))
    if took_s > most_s and run.job_steps is None and its.job is None:
        steps = max(_FEWEST_STEPS, int(run.steps * most_s / took_s))
        if steps < run.steps:
            its = its.shortened(steps, min(run.warmup, steps // 4))
    steps = f" of {its.run.steps:,} steps" if its.run.steps < run.steps else ""
    return its, f"{its.run.replications} of {run.replications:,} runs{steps}"


def drawn_timeline(scenario: bytes, name: str) -> dict[str, Any]:
    """Some steps of a configuration in time: ``timeline`` for the report, and what draws it at once; only a ``note`` where there is none."""
    given: Scenario = pickle.loads(scenario)  # noqa: S301
    short = given.model_copy(update={"job": None}).shortened(_STEPS_IN_TIME, min(given.run.warmup, _STEPS_IN_TIME // 3))
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


def reported(results: Sequence[bytes], chosen: str, notes: Sequence[str], timeline: bytes | None, *, whole: bool) -> str:
    """The report of some results: whole, as a file, or what a page takes that has its styles and scripts."""
    return render(_content(results, chosen, notes, timeline), whole=whole)


def _content(results: Sequence[bytes], chosen: str, notes: Sequence[str], timeline: bytes | None) -> Content:
    loaded: list[Result] = [pickle.loads(one) for one in results]  # noqa: S301
    steps: Timeline | None = None if timeline is None else pickle.loads(timeline)  # noqa: S301
    there = {result.scenario_hash for result in loaded}
    return content_of(loaded, notes, timeline=steps, chosen=chosen if chosen in there else None)


def is_long(point: Point) -> str:
    """Why a configuration is not simulated in full; nothing where it is."""
    if point.effort_s <= _WHOLE_S:
        return ""
    return (
        f"All runs with {counted(point.count, 'worker')} take about {format_rough_seconds(point.effort_s)} to simulate, so the first of them "
        "stand here: save the scenario, and simulate it with `paceline simulate`."
    )


def warmed(served: Served) -> bool:
    """Do all of this once, so that nothing is imported or compiled while somebody waits."""
    found = prepared(Question(text=served.text, most=4), served)
    if found.curves:
        point = found.curves[0].points[0]
        done = simulated(point.scenario, "look")
        timeline = drawn_timeline(point.scenario, found.curves[0].name)
        if done.result is not None:
            reported([done.result], point.hash, (), timeline.get("timeline"), whole=False)
    return not found.problems
