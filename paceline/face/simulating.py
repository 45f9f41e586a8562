"""simulate: one scenario in, one result out; compare: one result against another."""

from __future__ import annotations

from collections.abc import Callable

from paceline import comparing
from paceline.face.arguments import checked
from paceline.face.scenarios import GivenPrices, Settings, Source, load
from simulator.records import Observer
from simulator.results import Result
from simulator.run import simulate as run

__all__ = ["compare", "simulate"]


@checked
def simulate(
    scenario: Source,
    settings: Settings = (),
    *,
    prices: GivenPrices = None,
    observer: Observer | None = None,
    progress: Callable[[float, int], None] | None = None,
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
        Called with replications done, and what share of the present one, and with how many there are in all: after each, and
        in long ones after each some thousand steps.

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


@checked
def compare(ours: Result, theirs: Result) -> comparing.Comparison:
    """Throughput of one result over that of another, run by run where their runs share their draws.

    Parameters
    ----------
    ours, theirs
        Results, such as two of a sweep.

    Returns
    -------
    Comparison
        ``ratio`` (mean, and 90% prediction interval), and in how many of ``runs`` ours
        ``wins`` and ``losses``. ``runs`` is 0 where the two have another seed or number of
        replications: the interval is then as wide as those of both allow.

    Examples
    --------
    >>> short = {"strategy.workers": 4, "run.steps": 10}
    >>> slow, fast = (simulate("ring", {**short, "cluster.use": name}) for name in ("ethernet-1g", "ethernet-25g"))
    >>> found = compare(fast, slow)
    >>> found.wins, found.runs, found.ratio.low > 1
    (19, 19, True)
    """
    return comparing.compare(ours, theirs)
