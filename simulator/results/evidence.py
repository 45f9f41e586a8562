"""How far a scenario lies from anything that was measured: checked against real runs, interpolated, or covered by nothing.

A workload is measured on one worker, so a number of workers is never within what was
calibrated. What can be known is whether predictions of that *kind* of training were held
against real runs of as many workers: ``models/evidence.toml`` lists them. Its keys are the
fields of :class:`Checked`; kinds and modes are the words of strategies (``kind``, ``checked_as``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from simulator.base.catalog import own_file
from simulator.base.files import read_toml
from simulator.base.spec import Spec
from simulator.base.text import counted, format_rate, format_share
from simulator.base.validation_errors import validated
from simulator.results.inadequacy import is_borrowed, regime_of, regimes
from simulator.scenario import Resolved
from simulator.spec.figures import Coverage
from simulator.strategies.catalogue import Kind

Counts = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


class Checked(Spec):
    """One kind of training that was held against real runs."""

    what: str
    kind: Kind
    modes: tuple[str, ...] = Field(description="modes of parameter servers, algorithms of all-reduce")
    sharing: Literal["fair", "weighted"] = Field(description="how connections shared the links: cluster.transport.discipline")
    by_layer: bool = Field(description="whether gradients were sent while the backward pass went on")
    workers: Counts = Field(description="fewest and most that were run")
    servers: Counts = (0, 0)
    bandwidth_bytes_per_s: tuple[float, float] = Field(description="slowest and fastest link between nodes that was run")
    median_error: float = Field(ge=0, description="median size of the error of throughput, as a share")
    worst_error: float = Field(ge=0, description="largest")
    group: str = Field(description="column of docs/fidelity-earlier-lists.md that the errors are from")


class _Evidence(Spec):
    checked: tuple[Checked, ...]


@lru_cache(maxsize=1)
def checked_kinds() -> tuple[Checked, ...]:
    """Every kind of training that was held against real runs."""
    path = own_file("evidence.toml")
    return validated(_Evidence, read_toml(path), str(path)).checked


def coverage(scenario: Resolved) -> tuple[Coverage, ...]:
    """What speaks for a prediction of this scenario, resolved, aspect by aspect."""
    return (*_of_the_batch(scenario), *_of_the_device(scenario), *_of_the_workers(scenario))


def _of_the_batch(scenario: Resolved) -> Iterator[Coverage]:
    load = scenario.workload
    batch = scenario.batch // (load.passes.micro_batches if load.passes is not None else 1)  # that a pass takes at a time
    if load.is_computed:
        yield Coverage(
            about="batch", grade="uncovered", text="no step of any batch was measured: times are computed from the model's dimensions"
        )
        return
    if load.calibrated is None:
        yield Coverage(about="batch", grade="uncovered", text="the workload does not say at which batches its steps were measured")
        return
    low, high = load.calibrated.batch
    if load.fit is not None and batch in {point.batch for point in load.fit.points}:
        yield Coverage(about="batch", grade="checked", text=f"steps of batch {batch:,} were measured")
    elif low <= batch <= high:
        yield Coverage(about="batch", grade="interpolation", text=f"batch {batch:,} lies between those measured, {low:g} to {high:g}")
    else:
        text = f"batch {batch:,} lies outside of those measured, {low:g} to {high:g}"
        yield Coverage(about="batch", grade="uncovered", text=text)


def _of_the_device(scenario: Resolved) -> Iterator[Coverage]:
    load = scenario.workload
    if load.moved is not None and load.moved_by_factor:
        text = f"no step was measured on {load.moved.to_device}: the times are those of {load.moved.from_device}, moved by a factor"
        yield Coverage(about="device", grade="uncovered", text=text)
    elif load.is_computed:
        text = f"no step was measured on {load.device}: times are computed from its peak and bandwidth (docs/computed-workloads.md)"
        yield Coverage(about="device", grade="uncovered", text=text)
    if load.recast is not None:
        text = f"no step was measured in {load.precision}: the times are those in {load.recast.from_precision}, by a factor"
        yield Coverage(about="device", grade="uncovered", text=text)


def _of_the_workers(scenario: Resolved) -> Iterator[Coverage]:
    replicas, servers, known = scenario.ranks, scenario.servers, scenario.workload.calibrated
    if replicas == 1 and not servers:
        return
    if known is not None and _within(replicas, known.workers) and _within(servers, known.servers):
        text = f"the workload was measured with {known.workers[0]:g} to {known.workers[1]:g} workers"
        yield Coverage(about="workers", grade="interpolation", text=text)
        return
    found = _checked_like(scenario)
    if found is None:
        yield Coverage(about="workers", grade="uncovered", text=_by_the_regime(scenario))
        return
    most, fewest = found.workers[1], found.workers[0]
    errors = f"{format_share(found.median_error)} off in the median, {format_share(found.worst_error)} at worst"
    held = "predictions were held against real runs on one machine"
    which = f"({found.what}; {errors}: docs/fidelity.md)"
    if _within(replicas, found.workers) and _within(servers, found.servers):
        yield _of_the_link(scenario, found, f"{held} of {fewest} to {most} workers {which}")
        return
    few = servers <= found.servers[1]
    here = counted(replicas, "worker") + ("" if few else f" and {counted(servers, 'server')}")
    there = f"{fewest} to {most} workers" + ("" if few else f" and at most {counted(found.servers[1], 'server')}")
    yield Coverage(about="workers", grade="uncovered", text=f"{held} of {there}, not of {here} {which}")


def _by_the_regime(scenario: Resolved) -> str:
    """What was compared with real runs where no listed kind has all that a scenario has: what its intervals rest on."""
    regime = regime_of(scenario)
    known = None if regime is None or is_borrowed(scenario) else regimes().get(regime)
    if known is None or known.checked is None:
        return "no run of this kind was compared with a prediction; its interval is that of others"
    of_regime = known.about.partition(";")[0]
    return f"runs of {regime} were compared with predictions ({of_regime}), but none with all that this scenario has (docs/fidelity.md)"


def _of_the_link(scenario: Resolved, found: Checked, runs: str) -> Coverage:
    """As many workers were run; whether also with links like these, or what the links are counts for little."""
    rate = scenario.cluster.link_of(0).bandwidth_bytes_per_s
    if _within(rate, found.bandwidth_bytes_per_s):
        return Coverage(about="workers", grade="checked", text=runs)
    low, high = found.bandwidth_bytes_per_s
    links = f"links have {format_rate(rate)}; {runs} have links of {format_rate(low)} to {format_rate(high)}"
    alone_s = scenario.workload.compute_s(scenario.batch) + scenario.workload.apply_s
    share = 1.0 - alone_s / scenario.lone_step_s
    if rate > high and share < _LITTLE:
        text = f"messages take only {format_share(share)} of a step that has its links to itself, so it counts for little that {links}"
        return Coverage(about="workers", grade="interpolation", text=text)
    return Coverage(about="workers", grade="uncovered", text=links)


_LITTLE = 0.1
"""Share of a lone step that messages may take for their links to count for little: no link is then what limits."""


def _within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


def _checked_like(scenario: Resolved) -> Checked | None:
    """The kind of training that was run and is simulated the same way; none if something in it never was."""
    strategy, cluster, transport = scenario.strategy, scenario.cluster, scenario.cluster.transport
    never = (
        cluster.fabric is not None
        or cluster.host_link is not None
        or not cluster.even
        or (cluster.background is not None and not cluster.background.nothing)
        or cluster.replicas_per_node > 1
        or cluster.overlap_slowdown > 0
        or cluster.shared_cores is not None
        or transport.flow_cap_bytes_per_s is not None
        or transport.incast_loss > 0
        or transport.cpu_per_byte_s > 0
    )
    if never:
        return None
    way = strategy.checked_as(scenario)
    if way is None:
        return None
    mode, by_layer = way
    for kind in checked_kinds():
        if kind.kind == strategy.kind and mode in kind.modes and kind.by_layer == by_layer and kind.sharing == transport.discipline:
            return kind
    return None
