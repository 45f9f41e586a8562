"""Runs one replication: draws its parameters, makes its program, and runs that on the engine for it.

Programs whose ranks meet only in collectives without single messages are computed at once, whatever engine is chosen. The
compiled engine is imported by its name as text, so that machine code is loaded only where it runs. All replications of a scenario are
run in ``simulator.run``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from simulator.base.errors import SimulationError
from simulator.base.records import Log, Observer
from simulator.base.rng import Streams
from simulator.collectives.collective import Collective
from simulator.engine.choosing import MOST_OPERATIONS, engine_for, prepare
from simulator.engine.choosing import Engine as ByEngine
from simulator.engine.draws import Draws
from simulator.engine.production.at_once import AtOnceEngine
from simulator.engine.recorder import Follower, Measured, Recorder
from simulator.program.program import Program, Reduction, collectives_of
from simulator.resolve.drawing import compile_program, drawn_of
from simulator.scenario import Drawn, Resolved
from simulator.strategies.assembling import collective_of


class Shared:
    """Shared parts of a scenario's replications: program and collective, unless they depend on draws.

    Attributes
    ----------
    full_step_s
        Of the last one, seconds of a whole step when all workers are under way.
    tables
        What the compiled engine keeps of the program, for those that run it again.
    """

    def __init__(self) -> None:
        self._drawn: Drawn | None = None
        self._made: tuple[Program, Collective | None] | None = None
        self.full_step_s = 1.0
        self.tables: dict[bool, Any] = {}

    def of(self, drawn: Drawn, streams: Streams) -> tuple[Program, Collective | None]:
        """The program and the collective of a replication: those of the one before, or new ones."""
        if drawn is not self._drawn:
            before, self._drawn = self._drawn, drawn
            self.full_step_s = drawn.full_step_s
            if self._made is not None and self._made[1] is None and before is not None and _only_hosts_differ(before, drawn):
                self._made = replace(self._made[0], transport=drawn.cluster.transport), None
            else:
                self._made = None
        if self._made is None or not self._begins_again(drawn):
            self._made = None
            self.tables = {}
            self._made = compile_program(drawn, streams), collective_of(drawn, drawn.strategy.reduction, streams)
        return self._made

    def _begins_again(self, drawn: Drawn) -> bool:
        """Whether the previous replication's program can be reused: with the same routes, and without choices made in its run."""
        fabric = drawn.cluster.fabric
        background = drawn.cluster.background
        if self._made is None or (fabric is not None and fabric.spines > 1) or (background is not None and background.each_link):
            return False
        collective = self._made[1]
        return collective is None or collective.begin_again()


def _only_hosts_differ(drawn: Drawn, other: Drawn) -> bool:
    """Whether two draws of a scenario differ only in host costs of messages, which only the transport of a program has."""
    return (
        _same_but(drawn, other, {"cluster"})
        and _same_but(drawn.cluster, other.cluster, {"transport"})
        and _same_but(drawn.cluster.transport, other.cluster.transport, {"cpu_per_message_s", "copy_per_byte_s"})
    )


def _same_but(drawn: BaseModel, other: BaseModel, keys: set[str]) -> bool:
    """Return whether all fields of two tables but some are the same objects, as those of a copy are."""
    return all(getattr(drawn, name) is getattr(other, name) for name in type(drawn).model_fields if name not in keys)


def replicate(
    scenario: Resolved,
    replication: int,
    observer: Observer | None = None,
    engine: ByEngine | None = None,
    shared: Shared | None = None,
    on_progress: Callable[[float], None] | None = None,
    follower: Follower | None = None,
) -> Measured:
    """Simulate one real run of the scenario.

    Parameters
    ----------
    scenario
        What to simulate.
    replication
        Its number; chooses the random streams.
    observer
        Receives every record, where given.
    engine
        What runs it, where that has been chosen for all replications; left out: what is best for this one.
    shared
        Of all replications of this scenario; left out: everything is made for this one.
    on_progress
        Called now and then with the share of the steps that have ended.
    follower
        Receives what is measured as rows, where given.

    Raises
    ------
    InputError
        ``run.engine`` asks for an engine that cannot run here.
    DeadlockError, SimulationError
        The engine found an impossible state, or collectives of several groups are to be computed at once.
    """
    if engine is None:
        engine = engine_for(scenario)
    streams = Streams(scenario.run.seed, replication)
    drawn = drawn_scenario(scenario, streams)
    shared = shared or Shared()
    program, collective = shared.of(drawn, streams)
    run = Run(
        drawn, streams, program, Draws(drawn, streams, shared.full_step_s), collective, observer, on_progress, shared.tables, follower
    )
    # the engine makes millions of short-lived cycles-free objects; the collector only costs time meanwhile
    collecting = gc.isenabled()
    gc.disable()
    try:
        return run.on(engine)
    finally:
        if collecting:
            gc.enable()


@dataclass
class Run:
    """One replication, before an engine has been chosen."""

    drawn: Drawn
    streams: Streams
    program: Program
    draws: Draws
    collective: Collective | None
    observer: Observer | None
    on_progress: Callable[[float], None] | None = None
    tables: dict[bool, Any] | None = None
    follower: Follower | None = None

    def __post_init__(self) -> None:
        """Refuse what would have to be computed at once and is not known.

        Raises
        ------
        SimulationError
            Several groups have collectives, and the program does not have their messages; or ranks simulated event by event need a
            reduction that only the at-once engine has.
        """
        program = self.program
        rule = program.rules.reduction or Reduction()
        of_all = rule.cycle_s is not None or rule.by_need or rule.copies is not None or self.drawn.cluster.overlap_slowdown > 0
        if of_all and self.collective is not None and not self.together:  # which no scenario asks for, but its first epoch may
            raise SimulationError(
                "strategy.fusion_cycle, priority, through_host and cluster.overlap_slowdown are simulated for all ranks at once, which is "
                "impossible with pipelines that share cores or storage, as in the first epoch here: leave one of the two out"
            )
        untimed = any(routine.operations[number].lasts_s is None for routine in program.routines for number in collectives_of(routine))
        if len(program.groups) > 1 and not program.exchanges and untimed:
            raise SimulationError(
                f"{len(program.groups)} groups of ranks have collectives at the same time, whose shared links are only simulated with "
                'run.detail = "messages": set it'
            )

    @property
    def together(self) -> bool:
        """Return whether all ranks' steps are computed at once."""
        return self.program.together and not self.program.exchanges

    @property
    def only_simpy(self) -> bool:
        """Return whether a step has more operations than the compiled engine takes, and nobody insists on it."""
        return self.drawn.run.engine == "auto" and max(len(routine.operations) for routine in self.program.routines) > MOST_OPERATIONS

    def on(self, engine: ByEngine) -> Measured:
        """By an engine; all but ``simpy`` are as the program is, whatever was foreseen."""
        if engine == "simpy":
            return self.simpy()
        if self.together:
            return self.at_once()
        return self.simpy() if self.only_simpy else self.compiled()

    def compiled(self) -> Measured:
        """By the compiled engine, in machine code or in Python."""
        recorder = self._recorder()
        prepare()
        run_compiled: Callable[..., None] = import_module("simulator.engine.production.compiled").run
        run_compiled(
            self.program, self.draws, recorder, self._reduces_at_once, self.drawn.run.steps, self._log, self.on_progress, self.tables
        )
        self._note_collective(recorder.measured, self._sizes)
        return recorder.measured

    def at_once(self) -> Measured:
        """All ranks' steps at once, as arrays."""
        recorder = self._recorder()
        at_once = AtOnceEngine(self.program, self.draws, recorder, self.collective, self._log, self.on_progress)
        at_once.run()
        self._note_collective(recorder.measured, at_once.sizes)
        return recorder.measured

    def simpy(self) -> Measured:
        """By SimPy, whose engine is imported where it runs."""
        from simulator.engine.textbook import engine as textbook

        recorder = self._recorder()
        sizes = textbook.run(self.program, self.draws, recorder, self._reduces_at_once, self._log, self.on_progress)
        self._note_collective(recorder.measured, self._sizes if self.program.exchanges else sizes)
        return recorder.measured

    def _recorder(self) -> Recorder:
        drawn = self.drawn
        opens_at, closes_at = drawn.warmup * drawn.ranks, drawn.run.total_steps(drawn.ranks)
        apart, routine = drawn.strategy.pace.asynchronous, self.program.ranks.routine
        return Recorder(drawn.ranks, opens_at, closes_at, apart=apart, observer=self.observer, routine=routine, follower=self.follower)

    @property
    def _log(self) -> Log | None:
        reduction = self.drawn.strategy.reduction
        return Log(self.observer, reduction.does if reduction is not None else "all-reduce") if self.observer is not None else None

    @property
    def _reduces_at_once(self) -> Collective | None:
        """Return what finds the times of all ranks at once, where buckets are reduced so."""
        return None if self.program.exchanges else self.collective

    @property
    def _sizes(self) -> tuple[float, ...]:
        return tuple(operation.size_bytes for operation in self.program.routines[0].operations if operation.kind == "collective")

    def _note_collective(self, measured: Measured, sizes: Iterable[float]) -> None:
        if self.collective is None:
            return
        measured.aligned = self.collective.aligned and not self.program.exchanges
        choices = {size: self.collective.choice(size) for size in dict.fromkeys(sizes)}
        measured.algorithms = tuple((size, choice.algorithm, choice.protocol) for size, choice in choices.items())


def drawn_scenario(scenario: Resolved, streams: Streams) -> Drawn:
    """Return what one replication simulates (:func:`simulator.resolve.drawing.drawn_of`)."""
    return drawn_of(scenario, streams, _step_s)


def _step_s(alone: Drawn, streams: Streams) -> float:
    """Seconds of a step of a scenario without chance, simulated."""
    program = compile_program(alone, streams)
    run = Run(alone, streams, program, Draws(alone, streams, alone.full_step_s), None, None)
    measured = run.on(engine_for(alone))
    return float(measured.window_s / measured.steps)
