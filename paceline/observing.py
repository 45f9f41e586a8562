"""Simulates a scenario and looks at its first replication: a trace, TensorBoard's events, and a check of all invariants.

Only the order of the work is here, for ``paceline.observe``. Recording, traces and events are in ``simulator/observing``, the
invariants in :mod:`simulator.checks.invariants`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from simulator.base.files import Output
from simulator.base.records import Observer
from simulator.base.text import Short, counted
from simulator.observing.recording import FanOut, Recording
from simulator.resolve.resolve import Asked
from simulator.results.results import Result
from simulator.run import simulate
from simulator.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Observation(Short):
    """A result, and what was seen of its first replication.

    Attributes
    ----------
    result
        Of all replications.
    laws
        Laws that were checked, and hold, by name, with what each says; none without an audit.
    records
        How many facts they were checked on, by kind, such as ``"messages"``.
    trace
        The Chrome trace that was written.
    bound
        What bounds the step of median length, in a sentence; "" without a trace.
    tensorboard
        The folder with TensorBoard's events.
    """

    see: ClassVar[str] = ".result has the figures, .laws what was checked"

    result: Result
    laws: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)
    trace: Path | None = None
    bound: str = ""
    tensorboard: Path | None = None

    def _in_short(self) -> Iterator[str]:
        yield from self.result._in_short()
        yield counted(len(self.laws), "law") + " hold" if self.laws else ""
        yield self.bound
        for path in filter(None, (self.trace, self.tensorboard)):
            yield f"wrote {path}"

    def to_frame(self) -> pd.DataFrame:
        """The result as one row."""
        return self.result.to_frame()

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


def observe(
    scenario: Scenario,
    *,
    trace: Path | None = None,
    tensorboard: Path | None = None,
    audit: bool = False,
    reads: Path | None = None,
    force: bool = False,
    progress: Callable[[float, int], None] | None = None,
) -> Observation:
    """Simulate a scenario and look at its first replication; parameters and errors as of :func:`paceline.observe`.

    ``reads`` is the scenario's file, which must not be written over.
    """
    asked = Asked.of(scenario)
    recording, page = Recording(asked.resolved), None
    observers: list[Observer] = [recording] if trace is not None else []
    if trace is not None:
        from simulator.observing.chrome_trace import TRACE

        page = Output(trace, TRACE, force=force, argument="trace", reads=[] if reads is None else [reads])
    with ExitStack() as open_files:
        if tensorboard is not None:
            from simulator.observing.tensorboard import TensorBoard

            observers.append(open_files.enter_context(TensorBoard(tensorboard, asked.resolved, force=force)))
        result = simulate(asked, observer=FanOut(observers) if observers else None, progress=progress)
    bound = "" if page is None else _write_trace(page, scenario, recording)
    if not audit:
        return Observation(result, {}, {}, trace, bound, tensorboard)
    from simulator.checks import invariants

    audited = invariants.audit(scenario)
    return Observation(result, invariants.laws(), _counted(audited), trace, bound, tensorboard)


def _write_trace(page: Output, scenario: Scenario, recording: Recording) -> str:
    """Write the trace with the critical path of the measured step of median length; what bounds that step."""
    from simulator.observing.chrome_trace import chrome_trace
    from simulator.observing.recording import bound_of_step, critical_path, median_step

    measured = recording.steps[scenario.warmup * len({step.replica for step in recording.steps}) :] or recording.steps
    path = critical_path(recording, median_step(measured)) if measured else None
    about = {"scenario_hash": scenario.hash, "seed": scenario.run.seed, "replication": 0}
    page.write(chrome_trace(recording, path, replicas_per_device=scenario.cluster.replicas_per_device, about=about))
    return "" if path is None else bound_of_step(path)


def _counted(recording: Recording) -> dict[str, int]:
    counts = {
        "steps": len(recording.steps),
        "pieces of compute": len(recording.spans),
        "messages": len(recording.transfers),
        "services": len(recording.services),
    }
    return {kind: count for kind, count in counts.items() if count}
