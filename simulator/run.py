"""simulate: one scenario in, one result out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from simulator.engine.choosing import choose
from simulator.metrics import alone_scenario, summarise
from simulator.records import Observer
from simulator.replication import replicate
from simulator.resolve import Resolved, resolve
from simulator.results import Result
from simulator.scenario import Scenario

__all__ = ["simulate"]


def simulate(
    scenario: Scenario | Resolved, *, observer: Observer | None = None, progress: Callable[[int, int], None] | None = None
) -> Result:
    """Simulate every replication of a scenario.

    Parameters
    ----------
    scenario
        What to simulate; as it was written, or resolved already (elsewhere, with another catalogue at hand).
    observer
        Receives every record of replication 0: a trace, an audit.
    progress
        Called with replications done and in all, after each.

    Returns
    -------
    Result
        Depends on the scenario alone, but for ``wall_time_s``.

    Raises
    ------
    ScenarioError
        It cannot be resolved (:func:`simulator.resolve.resolve`).
    InputError
        ``run.engine`` asks for an engine that cannot run here.
    SimulationError
        The engine found an impossible state, such as a dead-lock.

    Examples
    --------
    >>> from simulator import load_scenario
    >>> result = simulate(load_scenario("ring", [("strategy.workers", 4), ("run.steps", 10), ("run.replications", 3)]))
    >>> result.scaling_efficiency.mean < 1, result.bottleneck.name, len(result.to_frame())
    (True, 'compute', 1)
    """
    begun = time.perf_counter()
    resolved = scenario if isinstance(scenario, Resolved) else resolve(scenario)
    scenario = resolved.scenario
    if scenario.run.engine == "compiled":
        choose("compiled", math.inf)
    count = scenario.run.replications
    alone = alone_scenario(scenario)
    same = alone == scenario
    runs, baseline = [], []
    for replication in range(count):
        run = replicate(scenario, replication, observer if replication == 0 else None)
        runs.append(run)
        # the same streams, so that what both have in common cancels in the speed-up
        baseline.append(run if same else replicate(alone, replication))
        if progress is not None:
            progress(replication + 1, count)
    result = summarise(resolved, runs, baseline)
    return result.model_copy(update={"wall_time_s": time.perf_counter() - begun})
