"""What was seen of a scenario's first replication: a trace, TensorBoard's events, and a check of all invariants.

``paceline.observe`` makes it. Recording, traces and events are in ``simulator/observing``, the invariants in
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


def write_trace(page: Output, scenario: Scenario, recording: Recording) -> str:
    """Write the trace with the critical path of the measured step of median length; what bounds that step."""
    from simulator.observing.chrome_trace import chrome_trace
    from simulator.observing.recording import bound_of_step, critical_path, median_step

    measured = recording.steps[scenario.warmup * len({step.replica for step in recording.steps}) :] or recording.steps
    path = critical_path(recording, median_step(measured)) if measured else None
    about = {"scenario_hash": scenario.hash, "seed": scenario.run.seed, "replication": 0}
    page.write(chrome_trace(recording, path, replicas_per_device=scenario.cluster.replicas_per_device, about=about))
    return "" if path is None else bound_of_step(path)


def counts_of(recording: Recording) -> dict[str, int]:
    """How many facts of each kind were recorded."""
    counts = {
        "steps": len(recording.steps),
        "pieces of compute": len(recording.spans),
        "messages": len(recording.transfers),
        "services": len(recording.services),
    }
    return {kind: count for kind, count in counts.items() if count}
