"""Observations of a scenario's first replication: a trace, TensorBoard events, and a check of all invariants.

``paceline.observe`` makes them. Recording, traces and events are in ``simulator/observing``, invariants in
:mod:`simulator.checks.invariants`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from simulator.base.files import Output
from simulator.base.text import Short, counted
from simulator.observing.recording import Recording
from simulator.results.results import Result
from simulator.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Observation(Short):
    """A result, and observations of its first replication.

    Attributes
    ----------
    result
        The result of all replications.
    laws
        Invariants that were checked and hold, by name, with their meaning; none without an audit.
    records
        Number of facts that they were checked on, by kind, such as ``"messages"``.
    trace
        The written Chrome trace.
    bound
        Sentence on what bounds the step of median length; "" without a trace.
    tensorboard
        The folder with TensorBoard events.
    """

    see: ClassVar[str] = ".result has the figures, .laws the checked invariants"

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
        """Return the result as one row."""
        return self.result.to_frame()

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


def write_trace(page: Output, scenario: Scenario, recording: Recording) -> str:
    """Write the trace with the critical path of the measured step of median length; return what bounds that step."""
    from simulator.observing.chrome_trace import chrome_trace
    from simulator.observing.recording import bound_of_step, critical_path, median_step

    measured = recording.steps[scenario.warmup * len({step.replica for step in recording.steps}) :] or recording.steps
    path = critical_path(recording, median_step(measured)) if measured else None
    about = {"scenario_hash": scenario.hash, "seed": scenario.run.seed, "replication": 0}
    page.write(chrome_trace(recording, path, replicas_per_device=scenario.cluster.replicas_per_device, about=about))
    return "" if path is None else bound_of_step(path)


def counts_of(recording: Recording) -> dict[str, int]:
    """Return the number of recorded facts by kind."""
    counts = {
        "steps": len(recording.steps),
        "compute operations": len(recording.spans),
        "messages": len(recording.transfers),
        "services": len(recording.services),
    }
    return {kind: count for kind, count in counts.items() if count}
