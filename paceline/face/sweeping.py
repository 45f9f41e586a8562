"""sweep: every combination of some values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paceline.face.arguments import checked
from paceline.face.scenarios import GivenPrices, Settings, Source, axes_of, out_of, pairs_of, prices_of, table_of
from simulator.prices import for_several

if TYPE_CHECKING:
    from paceline.sweeping import Sweep

__all__ = ["sweep"]


@checked
def sweep(
    scenario: Source,
    over: Mapping[str, Iterable[Any]],
    *,
    settings: Settings = (),
    prices: GivenPrices = None,
    out: str | Path | None = None,
    jobs: int = 0,
    backend: Literal["local", "dask", "ray"] = "local",
    scheduler: str | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Simulate every combination of some values.

    Parameters
    ----------
    scenario
        As for :func:`load`.
    over
        Values by dotted key; the last key changes fastest.
    settings
        Keys to set in all of them.
    prices
        As for :func:`plan`.
    out
        A results file, a line a scenario, each written as soon as it is there: after an
        interruption the same call goes on where it was. None keeps results in memory.
    jobs
        Processes, or tasks at a time; 0 takes all cores. Results do not depend on it.
    backend, scheduler
        Where they run: on this machine, or on a Dask or Ray cluster at that address.
    force
        Begin anew if ``out`` holds the results of another sweep.
    progress
        Called with scenarios done and in all.

    Returns
    -------
    Sweep
        A sequence of results, and of failures where a scenario could not be simulated.

    Raises
    ------
    ScenarioError
        A combination breaks a rule; the message says which one.
    ResultsError
        ``out`` holds something else.
    InputError
        An argument is of the wrong kind, ``out`` cannot be written or is the scenario's own file, or the cluster cannot be used.

    Examples
    --------
    >>> swept = sweep("ring", {"strategy.workers": [1, 4]}, settings={"run.steps": 10, "run.replications": 3}, jobs=1)
    >>> [result.replicas for result in swept]
    [1, 4]
    >>> swept.to_frame()["scaling_efficiency"].tolist()[0]
    1.0
    """
    from paceline.sweeping import grid, several_clusters
    from paceline.sweeping import sweep as run

    axes, journal = axes_of(over), out_of(out, scenario)
    pairs, given = pairs_of(settings), prices_of(prices)
    if several_clusters(axes):
        pairs, given = for_several(pairs, given)
    table, source, beside = table_of(scenario, pairs, over)
    made = grid(table, axes, source=source, beside=beside, prices=given)
    return run(made, journal, jobs=jobs, backend=backend, scheduler=scheduler, force=force, progress=progress)
