"""In which order a question is answered, and what is remembered: the quickest part first, each better than the one before.

While somebody looks, it is simulated on; whoever stops listening (another question, a page that is closed) ends the rest.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from paceline.serving.answers import (
    Curve,
    Planner,
    Point,
    Prepared,
    Share,
    Simulated,
    drawn_timeline,
    is_long,
    plan_command,
    planned,
    prepared,
    reported,
    share_of,
    simulated,
)
from paceline.serving.processes import SLOW, Processes
from paceline.serving.question import MOST_PLAN_S, Goal, Question, Served
from simulator.base.errors import PacelineError
from simulator.base.text import format_rough_seconds

Event = dict[str, Any]
"""A part of an answer, as the page takes it: ``kind`` says which."""
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
        self._known: OrderedDict[tuple[str, Share], Simulated] = OrderedDict()
        self._known_bytes = 0

    async def answer(self, question: Question) -> AsyncGenerator[Event, None]:
        """The parts of the answer, as they are there.

        Yields
        ------
        dict
            ``scenario``: the text, its form and what is wrong with it. ``bounds``: what no run can exceed, for each curve over workers.
            ``timeline``: some steps. ``look``: what a first look at a curve tells. ``report``: the report of what is simulated so far, the
            last one ``final``. ``progress``: how much of that is done. ``failed``: why there is no more.
        """
        try:
            found = await self._within(prepared, question, self.served)
            yield {
                "kind": "scenario", "text": found.text, "problems": found.problems, "form": found.form, "sliders": found.sliders,
                "left_out": found.left_out,
            }  # fmt: skip
            if found.problems:
                return
            yield _bounds(found)
            tasks = [
                asyncio.ensure_future(self._timeline(found)),
                *(asyncio.ensure_future(self._look(found, n)) for n in range(len(found.curves))),
            ]
            try:
                for task in asyncio.as_completed(tasks):
                    event = await task
                    yield {name: value for name, value in event.items() if name != "timeline"}
            finally:
                for its in tasks:
                    its.cancel()
            if question.all_of_it:
                timeline = tasks[0].result()
                async for event in self._reports(found, timeline.get("timeline")):
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
            found = await self._within(prepared, question, self.served)
            if found.problems:
                raise PacelineError("; ".join(f"{path}: {text}" if path else text for path, text in found.problems))
            timeline = await self._timeline(found)
            every: dict[Point, Simulated] = {}
            async for event in self._simulated([point for point in _points(found.curves) if not is_long(point)], "whole", every):
                yield event
            yield {"kind": "saved", "html": await self._reported(found, every, timeline.get("timeline"), whole=True)}
        except PacelineError as error:
            yield {"kind": "failed", "text": str(error)}

    async def _within(self, function: Any, *given: Any, urgency: int = 0) -> Any:
        """What is worked out at once, or never."""
        try:
            return await asyncio.wait_for(self.processes.run(function, *given, urgency=urgency), _LONGEST_S)
        except TimeoutError:
            raise PacelineError(f"it takes longer than {_LONGEST_S:g} s to read, which no page waits for; use the command line") from None

    async def _timeline(self, found: Prepared) -> Event:
        own = found.curves[0]
        try:
            return {"kind": "timeline", **await self._within(drawn_timeline, own.at(found.count).scenario, own.name, urgency=2)}
        except PacelineError as error:
            return {"kind": "timeline", "note": f"There is no timeline: {error}."}

    async def _look(self, found: Prepared, number: int) -> Event:
        point = found.curves[number].at(found.count)
        its = self._recalled(point, "whole") or await self._one(point, "look", urgency=1 if number == 0 else 2)
        return _look(number, point, its, first=True)

    async def _reports(self, found: Prepared, timeline: bytes | None) -> AsyncGenerator[Event, None]:
        points = list(_points(found.curves))
        told = [text for point in points if (text := is_long(point))]
        whole = [point for point in points if not is_long(point)]
        if any(self._recalled(point, "whole") is None for point in whole) or not whole:
            share = share_of(max(point.effort_s for point in points), found.replications, found.steps)
            rough: dict[Point, Simulated] = {}
            async for event in self._simulated(points, share, rough):
                yield event
            html = await self._reported(found, rough, timeline, whole=False)
            yield {"kind": "report", "html": html, "final": not whole, "said": _said(rough), "left_out": told}
        if whole:
            done: dict[Point, Simulated] = {}
            async for event in self._simulated(whole, "whole", done):
                yield event
            html = await self._reported(found, done, timeline, whole=False)
            for number, curve in enumerate(found.curves):
                if (point := curve.at(found.count)) in done:
                    yield _look(number, point, done[point], first=False)
            yield {"kind": "report", "html": html, "final": True, "said": _said(done), "left_out": told}

    async def _reported(self, found: Prepared, done: dict[Point, Simulated], timeline: bytes | None, *, whole: bool) -> str:
        """A report of what is simulated; the scenario's own comes first."""
        good = [(point, its) for point, its in done.items() if its.result is not None]
        if not good:
            raise PacelineError(next((its.failed for its in done.values()), "nothing could be simulated"))
        own = found.curves[0].at(found.count)
        asked = next((index for index, (point, _) in enumerate(good) if point == own), 0)
        notes = [*found.left_out, *(f"With {point.count:,} workers: {its.failed}." for point, its in done.items() if its.failed)]
        return str(await self._within(_render, [its.result for _, its in good], asked, notes, timeline, whole, urgency=2))

    async def _simulated(self, points: Sequence[Point], share: Share, done: dict[Point, Simulated]) -> AsyncGenerator[Event, None]:
        """Simulate configurations into ``done``, in their order there, the quickest first; tell how far that is."""
        tasks = {
            point: asyncio.ensure_future(self._one(point, share, urgency=SLOW)) for point in sorted(points, key=lambda its: its.effort_s)
        }
        try:
            for number, task in enumerate(asyncio.as_completed(tasks.values()), start=1):
                await task
                yield {"kind": "progress", "done": number, "of": len(tasks), "final": share == "whole"}
            done.update({point: tasks[point].result() for point in points})
        finally:
            for its in tasks.values():
                its.cancel()

    def _recalled(self, point: Point, share: Share) -> Simulated | None:
        found = self._known.get((point.hash, share))
        if found is not None:
            self._known.move_to_end((point.hash, share))
        return found

    async def _one(self, point: Point, share: Share, *, urgency: int) -> Simulated:
        """A configuration's result, simulated where it is not remembered."""
        found = self._recalled(point, share)
        if found is None:
            found = await self.processes.run(simulated, point.scenario, share, urgency=urgency)
            self._keep((point.hash, share), found)
        return found

    def _keep(self, key: tuple[str, Share], found: Simulated) -> None:
        if found.result is None or key in self._known:
            return
        self._known[key] = found
        self._known_bytes += len(found.result)
        while self._known_bytes > _KEPT_BYTES:
            _, oldest = self._known.popitem(last=False)
            self._known_bytes -= len(oldest.result or b"")


def _render(results: list[bytes], asked: int, notes: list[str], timeline: bytes | None, whole: bool) -> str:
    return reported(results, asked, notes, timeline, whole=whole)


def _points(curves: Sequence[Curve]) -> Iterator[Point]:
    for curve in curves:
        yield from curve.points


def _bounds(found: Prepared) -> Event:
    curves = [
        {"name": its.name, "colour": its.colour, "counts": [p.count for p in its.points], "bounds": [p.bound for p in its.points]}
        for its in found.curves
    ]
    return {"kind": "bounds", "curves": curves, "count": found.count, "sentence": found.sentence}


def _look(number: int, point: Point, its: Simulated, *, first: bool) -> Event:
    """What a curve has where the sliders stand: at first from a few runs, in the end from all."""
    look = None if its.look is None else asdict(its.look)
    return {"kind": "look", "curve": number, "count": point.count, "look": look, "failed": its.failed, "first": first}


def _said(done: dict[Point, Simulated]) -> str:
    return next((its.look.said for its in done.values() if its.look is not None), "")
