"""The result of a simulation, or its failure: frozen, versioned, and the same bytes for the same scenario.

Fields are the keys of results files and of ``--json``; rows.py names columns by them as text. Keep the order of the first ones:
``paceline.sweeping.results_file`` finds hash and scenario in the bytes of a line. metrics.py fills a result in; its parts are in
``simulator.spec.figures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from simulator.base.spec import Checksummed, Spec
from simulator.base.table import Cell, Row, flat
from simulator.base.text import Short, counted, estimated, format_seconds, format_share
from simulator.results.cost import placement_of, usd_per_billion_tokens, usd_per_hour, usd_per_million_samples
from simulator.results.rows import COLUMNS, brief_of
from simulator.scenario import Scenario
from simulator.spec.figures import (
    Assumed,
    Bottleneck,
    Breakdown,
    Coverage,
    Estimate,
    Exchange,
    JobOutcome,
    Phase,
    Placement,
    Quantiles,
    Reduced,
    Scatter,
    Stage,
    Staleness,
    Tokens,
    Utilisation,
    Warned,
)
from simulator.spec.uncertainty import AppliedDiscrepancy
from simulator.spec.workload import DeviceTransfer


class Outcome(Short, Checksummed):
    """Outcome of one scenario: a :class:`Result`, or a :class:`Failure`."""

    schema_version: Literal[1] = Field(default=1, description="version of this format")
    scenario_hash: str = Field(description="hash of the simulated scenario: equal hashes, equal results")
    scenario: Scenario = Field(description="the scenario as simulated, with everything filled in")

    @classmethod
    def rows_of(cls, items: Iterable[Outcome]) -> list[Row]:
        """One row per result with :data:`simulator.results.rows.COLUMNS`, after the settings that differ between them."""
        rows, settings = [], []
        for outcome in items:
            rows.append(outcome.row())
            settings.append(flat(outcome.scenario))
        swept = _that_differ(settings)
        return [{name: own.get(name) for name in swept} | row for own, row in zip(settings, rows, strict=True)]

    def row(self) -> Row:
        """All of :data:`simulator.results.rows.COLUMNS`; None for a missing figure."""
        facts = self._facts()
        return {name: column.read(self, facts) for name, column in COLUMNS.items()}

    def _facts(self) -> dict[str, Any]:
        """Values of columns that are not attributes, by the first part of ``Column.of``."""
        scenario = self.scenario
        strategy, run = scenario.strategy, scenario.run
        return {
            "strategy": f"{strategy.kind}, {strategy.variant}" if strategy.variant else strategy.kind,
            "scaling": scenario.scaling,
            "placed": placement_of(scenario),
            "global_batch": scenario.batch * scenario.replicas,
            "usd_per_hour": usd_per_hour(scenario),
            "steps_of_a_replica": run.steps if run.job_steps is None else None,
        }

    @property
    def ranks(self) -> int:
        """Number of ranks: replicas, or the parts into which they are split."""
        return self.scenario.ranks

    @classmethod
    def shown_columns(cls, rows: Sequence[Row]) -> list[str]:
        """All figures of one row; for several, the settings that differ and the most important figures."""
        if len(rows) <= 1:
            return [name for row in rows for name in row]
        brief = brief_of(rows)
        return [name for name in rows[0] if name in brief or name not in COLUMNS]

    def _caption(self) -> str:
        return f"{type(self).__name__} of {self.scenario.workload.name} on {self.scenario.cluster.name}"

    def _in_short(self) -> Iterator[str]:
        yield next(self.scenario._in_short())


class Result(Outcome):
    """The answer to one scenario; it depends only on the scenario."""

    see: ClassVar[str] = "to_frame() has every figure, .bottleneck.text and .warnings have the sentences, paceline.report(result) draws it"

    seed: int = Field(description="seed of all random numbers")
    replicas: int = Field(description="copies of the model that train")
    placement: Placement = Field(description="placement of replicas and servers")
    throughput_samples_per_s: Estimate = Field(description="samples per second of all replicas together")
    tokens: Tokens | None = Field(default=None, description="the throughput in tokens, and MFU; left out for samples without sequences")
    updates_per_s: Estimate = Field(description="updates of the model per second")
    throughput_of_each_replication: tuple[float, ...] = Field(
        default=(), description="distribution of samples/s, from which the interval follows"
    )
    wasted_samples_per_s: float = Field(default=0.0, description="samples per second whose gradients came too late and were dropped")
    dropped_share: float = Field(default=0.0, description="share of gradients dropped, or skipped by loss scaling")
    monte_carlo_error: float = Field(description="standard error of the mean throughput over replications, samples/s")
    step_time_s: Quantiles = Field(description="time of a step, over all measured steps of all replications")
    mean_step_s: Estimate = Field(description="mean time of a step of one run")
    speedup: Estimate = Field(
        description="throughput divided by that of a single replica with the same draws, run by run (docs/metrics.md)"
    )
    scaling_efficiency: Estimate = Field(
        description="speed-up divided by the number of ranks: replicas, or the parts into which they are split"
    )
    staleness: Staleness = Field(description="staleness of gradients when applied")
    mean_staleness: Estimate | None = Field(default=None, description="mean staleness of one run; null for synchronous training")
    discrepancy: AppliedDiscrepancy | None = Field(default=None, description="model error included in the intervals; null: not included")
    scatter: Scatter = Field(description="contributions to the interval of the throughput")
    phase: Phase | None = Field(default=None, description="whether several asynchronous workers step at the same time")
    breakdown_s: Breakdown = Field(description="breakdown of the mean step")
    hidden_communication_s: float = Field(
        default=0.0, description="communication of the mean step hidden behind computing; not part of the step's time"
    )
    moved: DeviceTransfer | None = Field(
        default=None, description="device to which the workload was scaled, the factor and the rule; null: not scaled"
    )
    all_reduces: tuple[Reduced, ...] = Field(default=(), description="algorithm and protocol of each bucket size")
    stages: tuple[Stage, ...] = Field(default=(), description="stages of a pipeline; left out without a pipeline")
    exchanges: tuple[Exchange, ...] = Field(
        default=(), description="exchange per step between devices that share one model or its state; left out for other strategies"
    )
    job: JobOutcome | None = Field(default=None, description="the whole job, if the scenario has one")
    utilisation: Utilisation = Field(description="utilisation of devices, links and servers")
    bottleneck: Bottleneck = Field(description="what limits the throughput")
    coverage: tuple[Coverage, ...] = Field(default=(), description="distance from measurements, aspect by aspect")
    assumed: tuple[Assumed, ...] = Field(default=(), description="keys left out of the scenario and set to TensorFlow's default")
    warnings: tuple[Warned, ...] = Field(description="warnings: what to know before trusting the numbers")
    events: int = Field(description="events of the simulation kernel, all replications")

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out fields that only some scenarios have."""
        written: dict[str, Any] = handler(self)
        for name in ("tokens", "stages", "exchanges", "job"):
            if not getattr(self, name):
                written.pop(name, None)
        return written

    def _in_short(self) -> Iterator[str]:
        yield from super()._in_short()
        rate = self.rate
        yield estimated(rate.mean, rate.low, rate.high, "throughput", self.scenario.unit.per_s)
        yield f"efficiency {format_share(self.scaling_efficiency.mean)}, step {format_seconds(self.step_time_s.mean)}"
        if self.job is not None:
            time = self.job.time_s
            yield f"whole job {estimated(time.mean, time.low, time.high, 'seconds')}"
        yield f"limit: {self.bottleneck.label}"
        yield counted(len(self.warnings), "warning")

    @property
    def rate(self) -> Estimate:
        """The throughput in the unit of the scenario: tokens, or samples, a second."""
        return self.throughput_samples_per_s.times(self.scenario.unit.per_sample)

    def rate_in(self, unit: str) -> Estimate:
        """The throughput in samples or, of sequences, tokens a second."""
        return self.rate if unit == "tokens" else self.throughput_samples_per_s

    @property
    def grade(self) -> str:
        """The weakest grade of :attr:`coverage`; empty without any."""
        order = ("uncovered", "interpolation", "checked")
        return min((part.grade for part in self.coverage), key=order.index, default="")

    @property
    def extrapolated(self) -> bool:
        """Return whether some aspect is not covered by any measurement."""
        moved = any(part.about == "device" and part.grade == "uncovered" for part in self.coverage)
        return moved or any(warning.code == "outside-calibration" for warning in self.warnings)

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {
            **dict(zip(("share_model", "share_parameters", "share_luck"), self.scatter.shares, strict=True)),
            "balance": self.bottleneck.balance or "",
            "cost": usd_per_million_samples(self),
            "tokens_cost": usd_per_billion_tokens(self),
            "warnings": len(self.warnings),
            "assumed": ", ".join(f"{each.path} = {each.value}" for each in self.assumed),
            "failed": "",
        }


def unit_of(results: Iterable[Result]) -> str:
    """What all of some results count: tokens if all train on sequences, whose lengths may differ, else samples."""
    return "tokens" if all(result.scenario.unit.name == "tokens" for result in results) else "samples"


class Failed(Spec):
    """Why a scenario has no result."""

    kind: str = Field(description="name of the error, such as DeadlockError")
    text: str = Field(description="its message, in one line")


class Failure(Outcome):
    """Line of a sweep for a scenario that could not be simulated."""

    see: ClassVar[str] = ".failed has the reason, .scenario the scenario"

    failed: Failed

    def _in_short(self) -> Iterator[str]:
        yield from super()._in_short()
        yield f"{self.failed.kind}: {self.failed.text}"

    def _facts(self) -> dict[str, Any]:
        figures = [column.path.partition(".")[0] for column in COLUMNS.values()]
        lacking = {name: None for name in figures if not hasattr(self, name)}
        return lacking | super()._facts() | {"failed": f"{self.failed.kind}: {self.failed.text}"}


def _that_differ(settings: Sequence[Row]) -> list[str]:
    """Keys with several values; a key of only some strategies is compared between those."""
    values: dict[str, set[Cell]] = {}
    for own in settings:
        for name, value in own.items():
            values.setdefault(name, set()).add(value)
    return [name for name, several in values.items() if len(several) > 1]
