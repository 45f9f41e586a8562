"""Simulates one scenario: all replications, the single-replica baseline for the speed-up, and the job around the steps.

It calls ``simulator.engine``, ``simulator.results`` and ``simulator.job`` in order. Steps shared by several scenarios, such as jobs that
differ only in checkpoints, are simulated once per process.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from simulator.base.errors import InputError, SimulationError
from simulator.base.records import Observer
from simulator.base.rng import Streams
from simulator.base.spec import Itself, canonical
from simulator.effort import check_memory
from simulator.engine.choosing import Engine, engine_for, likely_engine
from simulator.engine.recorder import Measured
from simulator.engine.replication import Shared, replicate
from simulator.memory import does_not_fit
from simulator.program.program import Program
from simulator.resolve.drawing import as_encoded, as_workers, compile_program
from simulator.resolve.measured_defaults import with_nominal_defaults
from simulator.resolve.resolve import Asked, alone_scenario, resolve
from simulator.results.cost import placement_of
from simulator.results.metrics import Window, summarise
from simulator.results.misread import misread
from simulator.results.results import Result
from simulator.scenario import Drawn, Resolved, Scenario
from simulator.strategies.assembling import collective_of

if TYPE_CHECKING:
    from simulator.program.printing import Printed, Reduced

Progress = Callable[[float, int], None]

_MANY = 10_000
"""Replicas from which on a replication takes tens of megabytes, next to which looking through a large process is little."""
_NO_LINK = {"bandwidth_bytes_per_s": 1.0, "latency_s": 0.0}


def simulate(scenario: Scenario | Asked, *, observer: Observer | None = None, progress: Progress | None = None) -> Result:
    """Simulate every replication of a scenario.

    Parameters
    ----------
    scenario
        What to simulate: as written, or already resolved (elsewhere, with another catalogue).
    observer
        Receives every record of replication 0: a trace, an audit.
    progress
        Called with the number of finished replications (with the share of the current one) and their total: after each replication, and in
        long ones after every few thousand steps.

    Returns
    -------
    Result
        Depends only on the scenario.

    Raises
    ------
    ScenarioError
        It cannot be resolved (:func:`simulator.resolve.resolve.resolve`).
    InputError
        It does not fit into its devices' memory, or simulating it into this machine's, or ``run.engine`` asks for an engine that
        cannot run here.
    SimulationError
        The engine found an impossible state, such as a deadlock; or memory ran out.

    Examples
    --------
    >>> from simulator import load_scenario
    >>> result = simulate(load_scenario("ring", [("strategy.workers", 4), ("run.steps", 10), ("run.replications", 3)]))
    >>> result.scaling_efficiency.mean < 1, result.bottleneck.name, len(result.to_frame())
    (True, 'compute', 1)
    """
    asked = scenario if isinstance(scenario, Asked) else Asked.of(scenario)
    if asked.resolved.job is None:
        return _of_steps(asked, observer, progress)
    from simulator.job.outcome import job_of, warned_of, window_of

    window = _Alike(Asked(window_of(asked.given), window_of(asked.resolved)), progress)
    steps = _kept(window) if observer is None else _of_steps(window.asked, observer, progress)
    given, job = asked.given, job_of(asked.resolved, steps, _rates)
    of_the_job = (warning for warning in misread(given) if warning.path.startswith(_NOT_OF_STEPS))
    warned = (*steps.warnings, *of_the_job, *warned_of(asked.resolved, job))
    identity = {"scenario": given, "scenario_hash": given.hash, "placement": placement_of(given)}
    return steps.replaced({**identity, "assumed": asked.assumed, "job": job, "warnings": warned})


_NOT_OF_STEPS = ("job.", "cluster.price.", "cluster.server_price.", "cluster.offers.", "cluster.upgrades.")
"""Keys that a job's window does not have."""


class _Alike:
    """Key of a scenario, equal for equal content."""

    def __init__(self, asked: Asked, progress: Progress | None = None) -> None:
        self.asked, self.progress = asked, progress
        digest = hashlib.sha256()
        for scenario in {id(each): each for each in (asked.given, asked.resolved)}.values():
            digest.update((scenario.model_dump_json(exclude={"workload"}) + canonical(Itself(scenario.workload))).encode())
        self._content = digest.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


@lru_cache(maxsize=32)
def _kept(window: _Alike) -> Result:
    """The same steps for jobs that differ only outside steps."""
    return _of_steps(window.asked, None, window.progress)


def _rates(scenario: Resolved) -> Sequence[float]:
    """Throughput of each replication."""
    return _kept(_Alike(Asked(scenario, scenario))).throughput_of_each_replication


def _of_steps(asked: Asked, observer: Observer | None, progress: Progress | None) -> Result:
    scenario = asked.resolved
    if scenario.run.memory == "refuse" and (why := does_not_fit(scenario)) is not None:
        raise InputError(f'{why}; run.memory = "ignore" simulates it anyway')
    likely = likely_engine(scenario)
    check_memory(scenario, likely)  # before anything is loaded
    if (engine := engine_for(scenario)) != likely:
        check_memory(scenario, engine)
    count = scenario.run.replications
    alone = alone_scenario(scenario)
    shared = Shared()
    runs: list[Measured] = []
    for replication in range(count):
        on_progress = None if progress is None else partial(_tell, progress, replication, count)
        try:
            run = replicate(scenario, replication, observer if replication == 0 else None, engine, shared, on_progress)
        except MemoryError:  # the estimate was too low, or others have taken what there was
            raise SimulationError(
                f"not enough memory to simulate {scenario.ranks:,} replicas (engine {engine}): use fewer replicas, or fewer processes at "
                "a time"
            ) from None
        if scenario.ranks >= _MANY:
            gc.collect()  # what a replication was made of is a web of cycles; of the next it need not stand beside
        if runs:
            runs[0].add_use(run)
            run.forget_use()
        runs.append(run)
        if progress is not None:
            progress(replication + 1, count)
    windows = tuple(map(Window.of, runs)) if alone == scenario else _windows(_without_links(alone), count, engine)
    return summarise(asked, runs, windows, lambda changed, number: replicate(changed, number, engine=engine))


def _tell(progress: Progress, done: int, count: int, share: float) -> None:
    """Report progress within a replication."""
    if share < 1.0:
        progress(done + share, count)


def _without_links(alone: Resolved) -> _Alike:
    """The single-replica baseline, without links that it does not read over: it sends nothing."""
    storage = alone.cluster.storage
    reads = alone.input is not None and storage is not None and storage.over_network
    unused = ("intra_node",) if reads else ("inter_node", "intra_node")
    alone = alone.replaced({f"cluster.{link}.{key}": value for link in unused for key, value in _NO_LINK.items()})
    return _Alike(Asked(alone, alone))


@lru_cache(maxsize=1024)
def _windows(alone: _Alike, count: int, engine: Engine) -> tuple[Window, ...]:
    """Windows of the single-replica baseline, often shared by scenarios of a sweep that differ in workers or links."""
    shared = Shared()
    # the same streams as of all, so that what both have in common cancels in the speed-up
    return tuple(Window.of(replicate(alone.asked.resolved, replication, engine=engine, shared=shared)) for replication in range(count))


def preview(scenario: Scenario) -> Printed:
    """Return the program of a scenario with every parameter at its mean, routes as in the first replication; nothing is drawn or run.

    It takes the steps of ``simulator.resolve.drawing``, with means in place of draws, but leaves in a step's times what was measured
    with servers.

    Raises
    ------
    ScenarioError
        It cannot be resolved.
    """
    from simulator.program.printing import Printed

    plain = Drawn(as_encoded(as_workers(with_nominal_defaults(resolve(scenario)))))
    streams = Streams(plain.run.seed, 0)
    program = compile_program(plain, streams)
    load, cluster = plain.workload, plain.cluster
    speed = np.ones(len(program.ranks))
    if cluster.node_classes or cluster.node_speed:
        nodes = np.arange(len(program.ranks)) // cluster.replicas_per_node
        speed = np.array([cluster.speed_of(node) for node in range(int(nodes[-1]) + 1)])[nodes]
    return Printed(
        scenario=scenario.hash,
        program=program,
        forward_s=float(load.forward_s(plain.batch)),
        backward_s=float(load.backward_s(plain.batch)),
        apply_s=load.apply_s,
        speed=speed,
        reduced=_reduced(plain, program, streams),
    )


def _reduced(scenario: Drawn, program: Program, streams: Streams) -> dict[float, Reduced]:
    """All-reduce algorithm by buffer size; empty if several groups reduce in different ways."""
    if len(program.groups) > 1:
        return {}
    sizes = {operation.size_bytes for routine in program.routines for operation in routine.operations if operation.kind == "collective"}
    collective = collective_of(scenario, scenario.strategy.reduction, streams) if sizes else None
    if collective is None:
        return {}
    from simulator.program.printing import Reduced

    choices = {size: collective.choice(size) for size in sizes}
    return {size: Reduced(choice.algorithm, choice.protocol, collective.duration_s(size)) for size, choice in choices.items()}
