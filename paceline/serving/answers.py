"""What is worked out for a question, part by part, in processes that stand ready; each function is one part, and takes and gives data.

Results go on as bytes: the process that serves passes them from one of these functions to another and never looks inside.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import shlex
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from paceline.answers import Answer, answer_of
from paceline.lengthy import Lengthy
from paceline.planning.answer import Plan
from paceline.planning.bounds import Ceilings
from paceline.planning.sentences import answer_of_plan
from paceline.planning.space import Line
from paceline.reporting.axes import band_colour, series_colour
from paceline.reporting.content import content_of
from paceline.reporting.figures import timeline_figure
from paceline.reporting.render import environment, render
from paceline.reporting.simulated import timeline_of
from paceline.reporting.timeline import Timeline
from paceline.serving.processes import SLOW, Processes, going_on
from paceline.serving.question import (
    MOST_PLAN_S,
    Goal,
    Question,
    Served,
    asked_of,
    changed,
    form_of,
    loaded,
    problems_of,
)
from simulator.base.errors import InputError, PacelineError
from simulator.base.files import toml_in
from simulator.base.text import clean, counted, format_rough_seconds, format_throughput
from simulator.base.validation_errors import quoted
from simulator.effort import effort_s
from simulator.resolve.resolve import Asked, resolve
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
Event: TypeAlias = dict[str, Any]
"""A part of an answer, as the page takes it: ``kind`` says which."""
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
        Throughput, in the unit of the scenario, that none of its runs can exceed; None where nothing is known.
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
    points
        By number of workers.
    """

    name: str
    points: tuple[Point, ...]

    def at(self, count: int) -> Point:
        """That with a number of workers, or the nearest."""
        return min(self.points, key=lambda point: (abs(math.log(point.count / count)), point.count))


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
    unit
        Of throughputs.
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
    unit: str = "samples/s"

    @property
    def points(self) -> list[Point]:
        """Those of all curves."""
        return [point for curve in self.curves for point in curve.points]


def prepared(question: Question, served: Served) -> Prepared:
    """Read a question, and say what follows without simulating: the form, what is wrong, and bounds."""
    text = question.text
    try:
        text = changed(question.text, question.changes)
        table = toml_in(text)
    except InputError as error:
        return Prepared(text, tuple((path, text if path else f"the text {text}") for path, text in problems_of(error, served)))
    try:
        scenario, count, lines, left_out = asked_of(table, question, served)
        curves = tuple(_curve(line) for line in lines)
    except InputError as error:
        return Prepared(text, tuple(problems_of(error, served)), form_of(table, None) if question.form else None)
    form, run, own = form_of(table, scenario) if question.form else None, scenario.run, curves[0].at(count)
    unit = scenario.unit.per_s
    said = _bound_in_words(own, curves, unit)
    return Prepared(text, (), form, _sliders(scenario, count), curves, count, run.replications, run.steps, left_out, said, unit)


def _curve(line: Line) -> Curve:
    points = []
    for count, asked in line.candidates.items():
        if (point := _known.get(asked.given.hash)) is None:
            point = _point(count, asked, line.ceilings)
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[asked.given.hash] = point
        points.append(point)
    return Curve(clean(line.name), tuple(points))


_known: dict[str, Point] = {}
"""Points that this process was asked for before, by their scenarios: while one slider moves most are the same again."""
_MOST_KNOWN = 2048


def _point(count: int, asked: Asked, ceilings: Ceilings) -> Point:
    scenario, most = asked.given, float(np.max(ceilings.of(asked)))
    effort = effort_s(asked.resolved)
    bound = most * scenario.unit.per_sample if math.isfinite(most) else None
    return Point(count, scenario.ranks, scenario.hash, pickle.dumps(scenario), bound, effort)


def _bound_in_words(own: Point, curves: Sequence[Curve], unit: str) -> str:
    """Return what no run can exceed."""
    several = f" by {curves[0].name}" if len(curves) > 1 else ""
    workers = counted(own.count, "worker")
    if own.bound is None:
        return f"{workers}{several}: no upper bound is known; simulating."
    return f"{workers}{several}: at most {format_throughput(own.bound)} {unit}."


def _sliders(scenario: Scenario, count: int) -> dict[str, Any]:
    """Keys that have sliders, with what they stand at; those that the scenario has."""
    load, strategy = scenario.workload, scenario.strategy
    batch = "batch_per_replica" if load.global_batch is None else "global_batch"
    network = getattr(scenario.cluster, strategy.link) if strategy.link else None
    sliders = {
        f"strategy.{strategy.count_key}": count if strategy.count_key else None,
        "strategy.servers": scenario.servers if strategy.has_servers else None,
        f"workload.{batch}": getattr(load, batch),
        f"cluster.{strategy.link}.bandwidth": None if network is None else network.bandwidth_bytes_per_s * 8e-9,
    }
    return {key: value for key, value in sliders.items() if value is not None}


@dataclass(frozen=True)
class Simulated:
    """A configuration that was simulated.

    Attributes
    ----------
    result
        Pickled; None where it failed.
    look
        What it tells, for the page: ``mean``, ``low`` and ``high`` of the throughput with the 90% prediction interval, in a few words what
        ``limit``s it, whether it is ``hollow``: beyond what was validated, and what is ``said`` of how it was simulated.
    failed
        Why there is none.
    """

    result: bytes | None = field(repr=False)
    look: dict[str, Any] | None
    failed: str = ""


def simulated(scenario: bytes, share: Share) -> Simulated:
    """Simulate a configuration: the whole of it, byte for byte as ``paceline simulate`` does, or a share."""
    given: Scenario = pickle.loads(scenario)  # noqa: S301 - of our own making
    if share == "look":
        bare = given.model_copy(update={"job": None})
        _, steps = share_of(effort_s(resolve(bare)), given.run.replications, given.run.steps, _LOOK_S)
        shortened = _with_share(bare, (min(_FEWEST_REPLICATIONS, given.run.replications), steps))
    else:
        shortened = given if share == "whole" else _with_share(given, share)
    try:
        result = simulate(shortened, progress=going_on)
    except PacelineError as error:
        return Simulated(None, None, str(error).splitlines()[0])
    rate, whole, part = result.rate, given.run, shortened.run
    runs = f"{part.replications} of {whole.replications:,}" if part.replications < whole.replications else f"{whole.replications:,}"
    said = f"{runs} runs" + (f" of {part.steps:,} steps" if part.steps < whole.steps else "")
    look = {
        "mean": rate.mean,
        "low": rate.low,
        "high": rate.high,
        "limit": result.bottleneck.label,
        "hollow": result.extrapolated,
        "said": said,
    }
    return Simulated(pickle.dumps(result), look)


def share_of(took_s: float, replications: int, steps: int, most_s: float = ROUGH_S) -> tuple[int, int]:
    """Replications and steps that take so long where all of them take ``took_s``: fewer replications first, then fewer steps."""
    fewer = min(replications, max(_FEWEST_REPLICATIONS, int(replications * most_s / max(took_s, 1e-9))))
    left_s = took_s * fewer / replications
    return fewer, steps if left_s <= most_s else min(steps, max(_FEWEST_STEPS, int(steps * most_s / left_s)))


def _with_share(scenario: Scenario, share: tuple[int, int]) -> Scenario:
    replications, steps = share
    run = scenario.run
    fewer = scenario.model_copy(update={"run": run.model_copy(update={"replications": replications})})
    if steps < run.steps and run.job_steps is None and fewer.job is None:
        return fewer.shortened(steps, min(run.warmup, steps // 4))
    return fewer


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
        "figure": timeline_figure(timeline),
        "sentence": timeline.sentence,
        "note": timeline.note,
    }


def answered(result: bytes) -> str:
    """The first screen of a result."""
    return _first_screen(answer_of(pickle.loads(result)))  # noqa: S301


def _first_screen(answer: Answer) -> str:
    return environment().get_template("live_answer.html").render(answer=answer)


def reported(results: Sequence[bytes], asked: int, notes: Sequence[str], timeline: bytes | None, whole: bool) -> Event:
    """The report of some results, about that of number ``asked``, as ``html``: a file, or what a page takes that has its styles and
    scripts, and then its first screen as ``answer``: of those with as many workers the fastest, where several are compared.
    """
    loaded: list[Result] = [pickle.loads(result) for result in results]  # noqa: S301
    steps: Timeline | None = None if timeline is None else pickle.loads(timeline)  # noqa: S301
    own = loaded[asked]
    html = render(content_of(loaded, notes, timeline=steps, asked=own.scenario_hash), whole=whole)
    if whole:
        return {"html": html}
    rivals = content_of([result for result in loaded if result.ranks == own.ranks], asked=own.scenario_hash)
    return {"html": html, "answer": _first_screen(rivals.decision)}


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
    for length in given.keys() & {"samples", "tokens"}:
        try:
            given[length] = float(given[length].replace(",", ""))
        except ValueError:
            raise InputError(f"{length}: {quoted(given[length])} must be a number, such as 1e9") from None
    if "price" in given:
        given["prices"] = given.pop("price")
    text = changed(question.text, question.changes)
    answer = plan(
        loaded(toml_in(text), served), strategies=question.strategies, clusters=question.clusters, workers=f"1..{question.most}",
        jobs=1, progress=lambda done, of, _: going_on(done, of), agree=refuse, **given,
    )  # fmt: skip
    return {
        "answer": _first_screen(answer_of_plan(answer)),
        "sentences": list(answer.sentences),
        "notes": list(answer.notes),
    }


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
    ready = prepared(Question(text=served.text, most=4), served)
    if ready.curves:
        point = ready.curves[0].at(ready.count)
        done = simulated(point.scenario, "look")
        drawn_timeline(point.scenario, ready.curves[0].name)
        if done.result is not None:
            answered(done.result)
            reported([done.result], 0, (), None, whole=False)
    return not ready.problems


_KEPT_BYTES = 256 << 20
"""Results that are remembered, so that what was asked before is there at once."""
_LONGEST_S = 10.0
"""What reading a question, drawing steps or writing a report may take: beyond that it is no honest question."""


class Conversation:
    """Answers questions about one scenario and its variations.

    Parameters
    ----------
    served
        What the page begins with.
    processes
        That work.
    plan
        Makes a plan.
    """

    def __init__(self, served: Served, processes: Processes, plan: Planner) -> None:
        self.served, self.processes, self.plan = served, processes, plan
        self._known: dict[tuple[str, Share], Simulated] = {}  # those used last at the end
        self._known_bytes = 0

    async def answer(self, question: Question) -> AsyncGenerator[Event, None]:
        """The parts of the answer, as they are there.

        Yields
        ------
        dict
            ``scenario``: the text, its form (HTML), what is wrong with it. ``bounds``: what no run can exceed, for each curve over workers.
            ``timeline``: some steps. ``look``: what a first look at a curve tells. ``report``: the report of what is simulated so far, the
            last one ``final``. ``progress``: how much of that is done. ``failed``: why there is no more.
        """
        try:
            ready = await self._within(prepared, question, self.served)
            form = "" if ready.form is None else environment().get_template("form.html").render(sections=ready.form)
            yield {
                "kind": "scenario", "text": ready.text, "problems": ready.problems, "form": form, "sliders": ready.sliders,
                "left_out": ready.left_out,
            }  # fmt: skip
            if ready.problems:
                return
            yield _bounds(ready)
            tasks = [
                asyncio.ensure_future(self._timeline(ready)),
                *(asyncio.ensure_future(self._look(ready, n)) for n in range(len(ready.curves))),
            ]
            try:
                for task in asyncio.as_completed(tasks):
                    event = await task
                    yield {name: value for name, value in event.items() if name != "timeline"}
            finally:
                for task in tasks:
                    task.cancel()
            if question.all_of_it:
                async for event in self._reports(ready):
                    yield event
        except PacelineError as error:
            yield {"kind": "failed", "text": str(error).splitlines()[0]}

    async def planned(self, question: Question, goal: Goal) -> AsyncGenerator[Event, None]:
        """A plan from there: ``progress`` while it is made, then ``planned`` or ``failed``, with the ``command`` that makes the same."""
        far: asyncio.Queue[Event | None] = asyncio.Queue()
        command = plan_command(question, goal, self.served.name)

        def tell(done: float, total: float) -> None:
            far.put_nowait({"kind": "progress", "done": int(done), "of": int(total), "final": False})

        making = self.processes.run(planned, self.plan, question, goal, self.served, urgency=SLOW + 1, progress=tell)
        made = asyncio.ensure_future(asyncio.wait_for(making, MOST_PLAN_S))
        made.add_done_callback(lambda _: far.put_nowait(None))
        try:
            while (event := await far.get()) is not None:
                yield event
            yield {"kind": "planned", "command": command, **made.result()}
        except TimeoutError:
            text = f"it takes longer than {format_rough_seconds(MOST_PLAN_S)}, which is all that a plan has here; plan on the command line"
            yield {"kind": "failed", "command": command, "text": text}
        except PacelineError as error:
            yield {"kind": "failed", "command": command, "text": str(error)}
        finally:
            made.cancel()

    async def saved(self, question: Question) -> AsyncGenerator[Event, None]:
        """The report of a question as a file: ``progress`` while everything is simulated, then ``saved`` or ``failed``."""
        try:
            ready = await self._within(prepared, question, self.served)
            if ready.problems:
                raise PacelineError("; ".join(f"{path}: {text}" if path else text for path, text in ready.problems))
            timeline = await self._timeline(ready)
            every: dict[Point, Simulated] = {}
            async for event in self._simulated([point for point in ready.points if not is_long(point)], "whole", every):
                yield event
            yield {"kind": "saved", **await self._reported(ready, every, timeline.get("timeline"), whole=True)}
        except PacelineError as error:
            yield {"kind": "failed", "text": str(error)}

    async def _within(self, function: Any, *given: Any, urgency: int = 0) -> Any:
        """Return what is worked out at once, or never."""
        try:
            return await asyncio.wait_for(self.processes.run(function, *given, urgency=urgency), _LONGEST_S)
        except TimeoutError:
            raise PacelineError(f"it takes longer than {_LONGEST_S:g} s to read, which no page waits for; use the command line") from None

    async def _timeline(self, ready: Prepared) -> Event:
        own = ready.curves[0]
        try:
            return {"kind": "timeline", **await self._within(drawn_timeline, own.at(ready.count).scenario, own.name, urgency=2)}
        except PacelineError as error:
            return {"kind": "timeline", "note": f"There is no timeline: {error}."}

    async def _look(self, ready: Prepared, number: int) -> Event:
        point = ready.curves[number].at(ready.count)
        done = self._recalled(point, "whole") or await self._one(point, "look", urgency=1 if number == 0 else 2)
        answer = ""
        if number == 0 and done.result is not None:
            answer = await self._within(answered, done.result, urgency=1)
        return {"kind": "look", "curve": number, "look": _look_at(point, done), "answer": answer, "failed": done.failed}

    async def _reports(self, ready: Prepared) -> AsyncGenerator[Event, None]:
        points = ready.points
        told = [text for point in points if (text := is_long(point))]
        whole = [point for point in points if not is_long(point)]
        if any(self._recalled(point, "whole") is None for point in whole) or not whole:
            share = share_of(max(point.effort_s for point in points), ready.replications, ready.steps)
            rough: dict[Point, Simulated] = {}
            async for event in self._simulated(points, share, rough):
                yield event
            report = await self._reported(ready, rough)
            yield {"kind": "report", "final": not whole, "left_out": told, **report, **_so_far(ready, rough)}
        if whole:
            done: dict[Point, Simulated] = {}
            async for event in self._simulated(whole, "whole", done):
                yield event
            report = await self._reported(ready, done)
            yield {"kind": "report", "final": True, "left_out": told, **report, **_so_far(ready, done)}

    async def _reported(
        self, ready: Prepared, done: dict[Point, Simulated], timeline: bytes | None = None, *, whole: bool = False
    ) -> Event:
        """A report of what is simulated; the scenario's own comes first."""
        good = [(point, simulation) for point, simulation in done.items() if simulation.result is not None]
        if not good:
            raise PacelineError(next((simulation.failed for simulation in done.values()), "nothing could be simulated"))
        own = ready.curves[0].at(ready.count)
        asked = next((index for index, (point, _) in enumerate(good) if point == own), 0)
        failed = {point.count: simulation.failed for point, simulation in done.items() if simulation.failed}
        notes = [*ready.left_out, *(f"With {count:,} workers: {text}." for count, text in failed.items())]
        results = [simulation.result for _, simulation in good]
        report: Event = await self._within(reported, results, asked, notes, timeline, whole, urgency=2)
        return report

    async def _simulated(self, points: Sequence[Point], share: Share, done: dict[Point, Simulated]) -> AsyncGenerator[Event, None]:
        """Simulate configurations into ``done``, in their order there, the quickest first; tell how far that is."""
        quickest_first = sorted(points, key=lambda point: point.effort_s)
        tasks = {point: asyncio.ensure_future(self._one(point, share, urgency=SLOW)) for point in quickest_first}
        try:
            for number, task in enumerate(asyncio.as_completed(tasks.values()), start=1):
                await task
                yield {"kind": "progress", "done": number, "of": len(tasks), "final": share == "whole"}
            done.update({point: tasks[point].result() for point in points})
        finally:
            for task in tasks.values():
                task.cancel()

    def _recalled(self, point: Point, share: Share) -> Simulated | None:
        if (known := self._known.pop((point.hash, share), None)) is not None:
            self._known[point.hash, share] = known  # the last of them now
        return known

    async def _one(self, point: Point, share: Share, *, urgency: int) -> Simulated:
        """A configuration's result, simulated where it is not remembered."""
        known = self._recalled(point, share)
        if known is None:
            known = await self.processes.run(simulated, point.scenario, share, urgency=urgency)
            self._keep((point.hash, share), known)
        return known

    def _keep(self, key: tuple[str, Share], simulation: Simulated) -> None:
        if simulation.result is None or key in self._known:
            return
        self._known[key] = simulation
        self._known_bytes += len(simulation.result)
        while self._known_bytes > _KEPT_BYTES:
            oldest = self._known.pop(next(iter(self._known)))
            self._known_bytes -= len(oldest.result or b"")


def _bounds(ready: Prepared) -> Event:
    curves = [
        {
            "name": curve.name,
            "colour": series_colour(index),
            "band": band_colour(index),
            "counts": [point.count for point in curve.points],
            "bounds": [point.bound for point in curve.points],
        }
        for index, curve in enumerate(ready.curves)
    ]
    return {"kind": "bounds", "curves": curves, "count": ready.count, "sentence": ready.sentence, "unit": ready.unit}


def _look_at(point: Point, simulation: Simulated) -> dict[str, Any] | None:
    return None if simulation.look is None else {"count": point.count, **simulation.look}


def _so_far(ready: Prepared, done: dict[Point, Simulated]) -> Event:
    """Return what each curve has, by number of workers."""
    looks = [[look for point in curve.points if point in done and (look := _look_at(point, done[point]))] for curve in ready.curves]
    return {"looks": looks, "said": next((look["said"] for curve in looks for look in curve), "")}
