"""simulate: one scenario in, one result out."""

from __future__ import annotations

from collections.abc import Callable

from paceline.face.arguments import checked
from paceline.face.scenarios import GivenPrices, Settings, Source, load
from simulator.records import Observer
from simulator.results import Result
from simulator.run import simulate as run

__all__ = ["simulate"]


@checked
def simulate(
    scenario: Source,
    settings: Settings = (),
    *,
    prices: GivenPrices = None,
    observer: Observer | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Simulate one scenario.

    Parameters
    ----------
    scenario, settings
        As for :func:`load`.
    prices
        As for :func:`plan`.
    observer
        Receives every record of the first replication: a trace, an audit.
    progress
        Called with replications done and in all, after each.

    Returns
    -------
    Result
        Depends on the scenario alone, but for ``wall_time_s``.

    Raises
    ------
    ScenarioError
        One line for each rule broken, with file and dotted key.
    SimulationError
        The engine found an impossible state, such as a dead-lock.

    Examples
    --------
    >>> result = simulate("ring", {"strategy.workers": 4, "run.steps": 10, "run.replications": 3})
    >>> result.scaling_efficiency.mean < 1, result.bottleneck.name, len(result.to_frame())
    (True, 'compute', 1)
    """
    return run(load(scenario, settings, prices=prices), observer=observer, progress=progress)
