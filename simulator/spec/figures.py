"""The figures of a result: estimates, quantiles, shares, stages, exchanges, figures of the job, and warnings.

Fields are keys of results files and of ``--json``; ``simulator.results.rows`` names them as text (``of=``), so rename both. The
figures are computed in ``simulator.results`` and ``simulator.job``. :data:`WARNINGS` lists each code of a :class:`Warned`,
wherever in ``simulator`` it is made (tests/unit/test_warnings.py finds one that is missing).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field

from simulator.base.spec import Spec, Terse
from simulator.base.table import Row
from simulator.base.text import format_interval, format_share, kind_of_setting, written


class Estimate(Spec):
    """Mean over replications, and a 90% prediction interval for one real run of the same length."""

    mean: float = Field(description="mean over replications")
    low: float = Field(description="low end of the 90% prediction interval")
    high: float = Field(description="high end of the 90% prediction interval")

    def times(self, factor: float) -> Self:
        """Scale mean and interval."""
        return self.replaced({"mean": self.mean * factor, "low": self.low * factor, "high": self.high * factor})


class Unit(NamedTuple):
    """What a training counts: samples, or tokens where samples are sequences.

    Attributes
    ----------
    name
        ``samples`` or ``tokens``.
    per_sample
        Number of them in a sample.
    """

    name: Literal["samples", "tokens"]
    per_sample: int

    @property
    def per_s(self) -> Literal["samples/s", "tokens/s"]:
        """Unit of the throughput."""
        return "tokens/s" if self.name == "tokens" else "samples/s"


class Tokens(Spec):
    """The throughput in tokens, and the model FLOPs utilisation (docs/metrics.md)."""

    per_sample: int = Field(description="tokens per sample: the length of a sequence")
    per_s: Estimate = Field(description="tokens per second of all replicas together")
    parameters: float = Field(description="N of 6 N D: parameters of the matrices that a token is multiplied with")
    mfu: Estimate | None = Field(description="MFU by 6 N D; null: the device's peak is unknown")
    mfu_with_attention: Estimate | None = Field(description="MFU by 6 N D + 12 L H Q T; null: the device's peak is unknown")


class Quantiles(Spec):
    """Distribution of a time over steps, in seconds."""

    mean: float = Field(description="mean")
    p50: float = Field(description="median")
    p95: float = Field(description="95th percentile")
    p99: float = Field(description="99th percentile")


class Share(Spec):
    """A share with its 90% interval."""

    mean: float = Field(ge=0, description="the share")
    low: float = Field(ge=0, description="low end of its 90% interval")
    high: float = Field(ge=0, description="high end")

    @property
    def told(self) -> bool:
        """Return whether the runs determine it well enough."""
        return self.high - self.low <= _TOLD


_TOLD = 0.5
"""A share with an interval wider than this is not shown."""


class Contribution(Spec):
    """Contribution of one uncertain quantity to the variance of the throughput's logarithm, which determines the interval."""

    name: str = Field(description="the quantity, one respect of model error, or chance")
    kind: Literal["drawn", "model", "chance"] = Field(
        description="drawn: uncertainty of fits and measured defaults; model: model error; chance: differences between runs and what the "
        "draws do not explain"
    )
    first: Share = Field(description="share of the variance expected to vanish if only this were known (first-order Sobol' index)")
    total: Share = Field(description="share of the variance left if everything else were known, interactions included (total index)")


class Measurement(Spec):
    """A measurement command, and the width of the interval expected after it."""

    command: str = Field(description="the command line; fill in the names in capitals")
    narrows: tuple[str, ...] = Field(description="quantities that the command narrows")
    throughput_samples_per_s: Estimate = Field(description="the same mean with the 90% interval expected afterwards")
    left: float = Field(ge=0, description="remaining share of the interval's width, in logarithms")
    at_best: bool = Field(description="whether this is the best case, because the error of such a measurement is unknown")
    rests_on: str = Field(description="basis of that expectation")


class Scatter(Spec):
    """Contributions to the interval of the throughput: standard deviations of its logarithm."""

    model: float = Field(ge=0, description="model error (the discrepancy)")
    parameters: float = Field(ge=0, description="uncertainty of the fits of workload and cluster")
    luck: float = Field(ge=0, description="differences between runs: jitter, starts, speeds of processes")

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of the variance: model, parameters, luck; zeros if there is no variance."""
        squares = self.model**2, self.parameters**2, self.luck**2
        total = math.fsum(squares)
        model, parameters, luck = (square / total if total else 0.0 for square in squares)
        return model, parameters, luck


class Histogram(Spec):
    """``counts[i]`` updates had staleness ``values[i]``."""

    values: tuple[int, ...] = Field(description="values of staleness")
    counts: tuple[int, ...] = Field(description="updates with each of these values")

    @classmethod
    def rows_of(cls, items: Iterable[Self]) -> list[Row]:
        """A row per value: ``staleness``, the number of ``updates`` with it, and their ``share``; several tables follow each other."""
        return [
            {"staleness": value, "updates": count, "share": count / sum(histogram.counts)}
            for histogram in items
            for value, count in zip(histogram.values, histogram.counts, strict=True)
        ]


class Staleness(Spec):
    """Staleness: updates applied between an update's read of the parameters and its own application."""

    mean: float = Field(description="mean over all updates")
    p50: int = Field(description="median")
    p95: int = Field(description="95th percentile")
    p99: int = Field(description="99th percentile")
    max: int = Field(description="largest")
    histogram: Histogram = Field(description="number of updates for each value of staleness")
    bound: int | None = Field(default=None, description="upper limit under stale-synchronous clocks: (n - 1) (2 bound + 1)")
    per_server_mean: tuple[float, ...] = Field(default=(), description="mean staleness counted per server")
    per_server_p95: tuple[int, ...] = Field(default=(), description="95th percentile counted per server")
    per_worker_mean: tuple[float, ...] = Field(
        default=(), description="mean staleness of each worker's updates; up to 1,024 workers are listed"
    )
    per_worker_p95: tuple[int, ...] = Field(
        default=(), description="95th percentile of each worker's updates: exact up to 16, within 12% above"
    )
    per_worker_max: tuple[int, ...] = Field(default=(), description="largest staleness of each worker's updates")
    mixed_reads: float = Field(default=0.0, description="share of reads that saw different versions on different servers")
    mixed_spread_mean: float = Field(default=0.0, description="updates between the newest and the oldest version read, mean over all reads")
    mixed_spread_max: int = Field(default=0, description="largest number of updates between the newest and the oldest version read")


class Breakdown(Spec):
    """Breakdown of the mean step in seconds; the parts sum to ``step_time_s.mean``, and that times the throughput is the batch."""

    input: float = Field(description="waiting for input")
    compute: float = Field(description="forward and backward pass")
    exposed_communication: float = Field(description="exposed communication: not hidden behind computing")
    waiting: float = Field(description="waiting for others")
    apply: float = Field(description="applying the update")

    @property
    def total(self) -> float:
        """Seconds of the mean step."""
        return self.input + self.compute + self.exposed_communication + self.waiting + self.apply


class Placement(Spec):
    """Placement of the scenario's processes: the machines to rent or buy."""

    nodes: int = Field(description="machines in total; for a cluster of fixed size, all of it")
    worker_nodes: int = Field(description="machines that hold replicas")
    server_nodes: int = Field(description="machines with parameter servers only")
    replicas_per_node: int = Field(description="replicas on a full machine")
    devices_per_node: int = Field(description="devices per machine, used or not")
    text: str = Field(description="the placement in words")


class Phase(Spec):
    """Whether asynchronous workers moved in step (docs/metrics.md)."""

    order_at_start: float = Field(
        description="order parameter of the workers' phases: 1 if all are at the same point of their steps; "
        "about 1 / sqrt(n) if phases are random"
    )
    order_at_end: float = Field(description="order of the workers' phases when the run ends")
    order_of_random_phases: float = Field(description="value that n random phases exceed with probability 1/4")
    mixed_share: float = Field(description="share of replications in which the order fell to the level of random phases")
    mixed_after_s: float | None = Field(default=None, description="median time until it fell, over those replications")
    run_s: float = Field(default=0.0, description="mean duration of a run, warm-up included")


class Reduced(Spec):
    """How buffers of one size were all-reduced."""

    size_bytes: float = Field(description="size of the buffer")
    algorithm: str = Field(description="all-reduce algorithm")
    protocol: str = Field(description="protocol")


class Stage(Spec):
    """One stage of a pipeline: its layers, and the breakdown of its devices' time; the four shares sum to 1."""

    layers: str = Field(description="first and last layer of each chunk")
    layer_count: int = Field(description="number of layers")
    devices: int = Field(description="devices of all copies of the stage")
    parameter_bytes: float = Field(description="parameter bytes of its layers in one copy of the model, over all devices that share them")
    busy: float = Field(description="share of the time in which the stage's devices compute")
    bubble: float = Field(description="share of the time in which they wait for other stages or copies")
    communication: float = Field(description="share of the time in which they wait only for messages and collectives")
    input: float = Field(default=0.0, description="share of the time in which they wait for their batch")
    staleness: int = Field(default=0, description="exact staleness of its gradients in updates (PipeDream); 0: none")


class Exchange(Spec):
    """Exchange between devices per step: one kind of collective, or of messages between stages."""

    among: Literal[
        "tensor", "context", "experts", "tensor and context", "tensor and experts", "context and experts",
        "tensor and context and experts", "host", "stages", "copies", "shards", "alike shards", "alike experts",
        "shards of experts", "tied stages",
    ] = Field(
        description="group that communicates: devices that split tensors; that split sequences; that hold experts; a device and its "
                    "host; neighbours in the pipeline; all copies of a stage; copies that shard one state; copies with the same shard; "
                    "copies with the same experts; those of them that shard one state; stages with copies of the same variables"
    )  # fmt: skip
    does: str = Field(description="operation: all-reduce, all-gather, activations, ...")
    devices: int = Field(description="devices per group")
    links: Literal["in a node", "between nodes"] = Field(description="links that the group crosses")
    stage: int = Field(description="the stage for which it takes longest; the figures are for this stage")
    times: int = Field(description="operations per device and step")
    size_bytes: float = Field(description="total size of a device's buffers or messages per step")
    seconds: float = Field(description="seconds for all of them in sequence, if only groups that do the same used the links")
    amid: bool = Field(default=False, description="whether the next pass waits for the result")


class JobParts(Spec):
    """Breakdown of a job's time, mean over replications; the parts sum to the job's time."""

    startup: float = Field(description="time until the first step begins: processes, imports, the cluster, building the model")
    tracing: float = Field(description="extra time of the first steps of training and evaluation")
    first_epoch: float = Field(description="extra time of the first epoch's steps while the input pipeline fills its cache")
    filling: float = Field(description="waiting for the first batch of each epoch")
    iterators: float = Field(default=0.0, description="waiting for the end of the last epoch's tf.data iterators")
    steps: float = Field(description="steps whose work is kept")
    evaluation: float = Field(description="evaluation passes between epochs, including the end of their tf.data iterators")
    checkpoints: float = Field(description="time for which training waits for checkpoints")
    lost_work: float = Field(description="steps whose work was lost to a fault")
    down: float = Field(description="after faults: time until detection, and until the crashed part is back and has restored a checkpoint")
    fewer_workers: float = Field(description="extra time of steps while workers are missing and the others continue")

    @property
    def of_steps(self) -> float:
        """Seconds of steps of any kind, which scale with an error of the throughput; the rest does not."""
        return self.steps + self.first_epoch + self.lost_work + self.fewer_workers + self.evaluation


class Epoch(Spec):
    """An epoch without faults: mean seconds."""

    number: int = Field(description="number of the epoch, from 1; for a group of identical epochs, the first")
    like_it: int = Field(description="number of identical epochs, this one included")
    time_s: float = Field(description="time of the whole epoch")
    first_step_s: float = Field(description="time of the first step")
    step_s: float = Field(description="time of the later steps")
    steps: float = Field(description="number of steps")
    evaluation_s: float = Field(description="evaluation after the epoch")
    checkpoint_s: float = Field(description="waiting for checkpoints during the epoch")
    iterators_s: float = Field(default=0.0, description="waiting for the end of the previous epoch's tf.data iterators")


class Checkpointing(Spec):
    """Checkpoint interval: as set, and the optimum."""

    set_s: float | None = Field(
        default=None, description="time of steps between checkpoints, as set or as optimised; null: set in steps or epochs"
    )
    interval_s: float = Field(description="mean time of steps between checkpoints, rounded to whole steps")
    wall_s: float | None = Field(default=None, description="mean wall time between checkpoints without faults: interval_s + cost_s")
    cost_s: float = Field(description="time for which training waits at each checkpoint")
    size_bytes: float = Field(description="size of a checkpoint")
    best_s: float | None = Field(default=None, description="interval that minimises the expected time of the job; null: nothing fails")
    young_s: float | None = Field(default=None, description="Young's first-order optimum, sqrt(2 C M)")
    daly_s: float | None = Field(default=None, description="Daly's higher-order optimum")


class JobOutcome(Terse, only=("steps_share_of_each_replication", "away_node_s")):
    """The whole job: its time, cost and breakdown."""

    samples: float = Field(description="samples trained on over all epochs")
    steps: float = Field(description="global steps of the job; asynchronous: updates")
    epochs: float = Field(description="passes over the data")
    time_s: Estimate = Field(description="time until the job ends")
    cost_usd: Estimate | None = Field(
        default=None, description="cost of all nodes, excluding preempted nodes while they are gone; null: price unknown"
    )
    samples_per_s: Estimate = Field(description="samples per second with all overheads included")
    samples_per_s_of_each_replication: tuple[float, ...] = Field(
        description="distribution of the job's time, from which the interval follows"
    )
    steps_share_of_each_replication: tuple[float, ...] = Field(
        default=(),
        description="share of each node's time spent in steps, kept or lost; left out: no fault occurred",
    )
    goodput: Estimate = Field(
        description="goodput: share of the time spent in steps that were kept, at full strength; over all runs together, with the "
        "interval of a single run"
    )
    parts_s: JobParts = Field(description="where the time goes")
    each_epoch: tuple[Epoch, ...] = Field(default=(), description="times per epoch, without faults; identical epochs appear once")
    checkpointing: Checkpointing | None = Field(default=None, description="checkpoint interval and cost; null: no checkpoints")
    mtbf_s: float | None = Field(
        default=None,
        description="mean time between any two faults, from the given mean times; null: nothing fails, or faults follow a trace",
    )
    faults: float = Field(default=0.0, description="mean number of faults until the job ends, over the runs in time_s")
    away_node_s: float = Field(default=0.0, description="mean time without preempted nodes, summed over all nodes")
    given_up: float = Field(default=0.0, description="share of runs that give up after too many restarts")


class Utilisation(Spec):
    """Utilisation of each kind of resource: mean over all of the kind, and of the busiest one."""

    devices: float = Field(description="mean share of the time in which devices compute")
    links: float = Field(description="mean share of the links' bandwidth in use")
    servers: float = Field(description="mean share of the time in which servers work")
    busiest_link: float = Field(description="utilisation of the busiest link")
    busiest_link_name: str = Field(description="name of the busiest link")
    busiest_server: float = Field(description="utilisation of the busiest server")
    cores: float = Field(default=0.0, description="utilisation of the cores that all nodes share; 0 if nodes have their own cores")


Limit = Literal[
    "compute", "input", "network", "server-network", "fabric", "host", "host-link", "host-cpu", "client", "server", "stragglers",
    "shared-cores", "coordinator", "latency", "apply", "pipeline-bubble", "slow-stage", "exchange",
]  # fmt: skip
"""Code of the limit within a group."""

LimitGroup = Literal["compute", "communication", "input", "servers", "stragglers", "pipeline", "coordinator"]
"""Group of the limit of a throughput, in common words."""

GROUPS: Mapping[Limit, LimitGroup] = {
    "compute": "compute", "apply": "compute", "host": "compute", "shared-cores": "compute",
    "network": "communication", "server-network": "communication", "fabric": "communication", "host-link": "communication",
    "host-cpu": "communication", "latency": "communication", "exchange": "communication",
    "input": "input", "client": "input",
    "server": "servers",
    "stragglers": "stragglers",
    "pipeline-bubble": "pipeline", "slow-stage": "pipeline",
    "coordinator": "coordinator",
}  # fmt: skip
"""The group of each limit. Memory is not a group: scenarios that do not fit are refused, and the means to make them fit cost compute or
communication."""


class Trial(Spec):
    """One change, simulated for a few steps with the same draws."""

    change: str = Field(description="the change in words: a device twice as fast")
    gain: float = Field(description="relative change of throughput")


def _as_trials(written: object) -> object:
    """Drop the sentence written by earlier versions."""
    return () if isinstance(written, str) else written


class Bottleneck(Spec):
    """Limit of the throughput: a group, the part of it, and at most two sentences."""

    name: Limit = Field(description="largest limit within the group, as a code")
    group: LimitGroup = Field(default_factory=lambda known: GROUPS[known["name"]], description="the limit, as a code")
    share: float | None = Field(default=None, description="share of a step that the group takes; null: unknown")
    detail: str = Field(default="", description="the limit in words, such as latency of 510 messages; empty if the group says it all")
    balance: Limit | None = Field(default=None, description="limit of another group that matters equally; null: only one group limits")
    balance_share: float | None = Field(default=None, description="share of a step that the other group takes")
    larger: LimitGroup | None = Field(default=None, description="group that takes a larger share of a step but limits less; null: none")
    larger_share: float | None = Field(default=None, description="share of a step that this group takes")
    text: str = Field(description="the share and the most important trials, in at most two sentences")
    remedy: str = Field(default="", description="suggested change, in one sentence")
    tried: Annotated[tuple[Trial, ...], BeforeValidator(_as_trials)] = Field(
        default=(), description="trials of changes, best first; empty: the limit follows from shares of a step"
    )

    @property
    def label(self) -> str:
        """The group in words, or both groups if two limit together."""
        return self.group if self.balance is None else f"{self.group} and {GROUPS[self.balance]}"

    @property
    def in_words(self) -> str:
        """The label with its shares and the part in detail: ``communication (60% of a step), mostly latency of 510 messages``.

        A larger group is mentioned too: ``communication (41% of a step, compute takes 59%), mostly host CPU per message``.
        """
        shares = [format_share(share) for share in (self.share, self.balance_share) if share is not None]
        larger = f", {self.larger} takes {format_share(self.larger_share)}" if self.larger and self.larger_share else ""
        share = f" ({' and '.join(shares)} of a step{larger})" if shares else ""
        mostly = f", mostly {self.detail}" if self.detail and self.balance is None else ""
        return f"{self.label}{share}{mostly}"


class Assumed(Spec):
    """A value assumed for a key that the scenario leaves out, and why."""

    path: str = Field(description="dotted path of the key")
    value: str = Field(description="value used")
    reason: str = Field(description="why")


class Coverage(Spec):
    """Evidence for one aspect of a prediction."""

    about: Literal["batch", "device", "workers"] = Field(description="which aspect")
    grade: Literal["checked", "interpolation", "uncovered"] = Field(
        description="checked: validated on real runs of that kind; interpolation: between measured points; uncovered: not validated"
    )
    text: str = Field(description="what it was validated on, in one sentence")


class Warned(Spec):
    """A warning to read before trusting the numbers."""

    code: str = Field(description="code of the warning")
    path: str = Field(description="dotted path of the key concerned")
    value: float | str = Field(description="value in the scenario")
    range: tuple[float, float] | None = Field(default=None, description="validated range; null: none")
    text: str = Field(description="the warning in one sentence")

    @classmethod
    def of(cls, code: str, value: float | str, text: str, path: str = "", within: tuple[float, float] | None = None) -> Self:
        """Return a warning of a kind listed in :data:`WARNINGS`, which gives the path if it is the same for the whole kind."""
        return cls(code=code, path=path or WARNINGS[code].path, value=value, range=within, text=text)

    @property
    def doubts(self) -> int:
        """How much it questions the figures, as in :class:`WarningKind`."""
        return WARNINGS[self.code].doubts if self.code in WARNINGS else 0

    @property
    def brief(self) -> str:
        """The warning in a few words, for an answer that names only its main doubts."""
        title = WARNINGS[self.code].title if self.code in WARNINGS else self.code
        brief = title[:1].lower() + title[1:] if title[1:2].islower() and not title.startswith("Keras") else title
        leaf = self.path.rpartition(".")[2]
        if self.doubts > 1:
            return self.text.partition("; ")[0]
        if self.code != "outside-calibration":
            return brief
        if self.range is None:
            if not self.text.startswith(_LINKS):
                return "no real run combined all these features"
            rate, validated = self.text.partition(";")[0].removeprefix(_LINKS), self.text.rpartition("links of ")[2]
            return f"links of {rate}: {brief} ({validated})"
        value = self.value if isinstance(self.value, str) else written(self.value, kind_of_setting(leaf))
        what = {"workers": f"{value} workers", "batch_per_replica": f"batch {value}"}.get(leaf, f"{leaf.replace('_', ' ')} {value}")
        return f"{what}: outside what was validated ({format_interval(*self.range, kind_of_setting(leaf))})"


_LINKS = "links have "


class WarningKind(NamedTuple):
    """Common properties of all warnings with a code.

    Attributes
    ----------
    title
        Title in a report.
    path
        Dotted path of the key concerned; empty: several keys.
    doubts
        2 may change the conclusion: it comes first, with a clause of its text. 1 questions the figures; 0, advice on settings, is last.
    """

    title: str
    path: str = ""
    doubts: int = 0


WARNINGS: Mapping[str, WarningKind] = {
    "aligned-collective": WarningKind("All enter the all-reduce together", "strategy.algorithm"),
    "as-multiple": WarningKind("A multiple, not a percentage", doubts=2),
    "assumed-network": WarningKind("The network is assumed, not measured", "cluster.basis", doubts=1),
    "biased": WarningKind("Predictions of this kind were biased", "cluster.device", doubts=2),
    "class-without-nodes": WarningKind("A class without nodes", "cluster.node_classes"),
    "computed": WarningKind("Times are computed, not measured", "workload", doubts=1),
    "device-not-known": WarningKind("The workload's device is unknown", "workload.calibrated.device", doubts=1),
    "disturbed-calibration": WarningKind("Calibrated on a busy machine", "workload.provenance", doubts=1),
    "few-replications": WarningKind("Few replications: the interval assumes a normal distribution", "run.replications"),
    "free-apply": WarningKind("No time is given for applying gradients, so it is zero", "workload.server", doubts=1),
    "gathers-not-hidden": WarningKind("All-gathers take longer than the passes that hide them", "strategy.shard"),
    "host-bound": WarningKind("Launching kernels may take longer than computing", "workload", doubts=2),
    "implausible": WarningKind("A figure beyond any known hardware", doubts=2),
    "iterator-ends": WarningKind("Epochs may begin with a pause", "job.iterators"),
    "mfu-above-published": WarningKind("MFU is above that of any published run on the device", "cluster.device", doubts=2),
    "moved-device": WarningKind("Compute is scaled to another device", "workload.moved", doubts=1),
    "neighbours-not-felt": WarningKind("Background traffic has no effect", "cluster.background.on"),
    "no-effect": WarningKind("A key has no effect"),
    "no-overlap": WarningKind("No overlap to slow down", "cluster.overlap_slowdown"),
    "no-sort": WarningKind("The link's nominal rate is used as its achieved rate", "cluster.inter_node.sort"),
    "no-uncertainty": WarningKind("No uncertainty is given, so the interval is too narrow", doubts=1),
    "one-batch": WarningKind("The batch is smaller than the one that was timed", "workload.forward.base_s", doubts=1),
    "not-by-fit": WarningKind("Keras 3 fit() does not support this strategy", "strategy.kind"),
    "not-calibrated": WarningKind("The measured range is not recorded", "workload.calibrated", doubts=1),
    "one-bucket": WarningKind("One bucket holds all gradients, so none overlaps", "strategy.bucket_size_bytes"),
    "one-switch": WarningKind("Rails on one switch", "cluster.rails"),
    "step-with-servers": WarningKind("The measured step includes more than compute", "workload.measured_with", doubts=1),
    "other-device": WarningKind("Measured on another device, used without scaling", "cluster.device", doubts=1),
    "other-precision": WarningKind("Compute is scaled to another precision", "training.precision", doubts=1),
    "outside-calibration": WarningKind("Outside what was validated", doubts=1),
    "overridden": WarningKind("Overridden by the scenario"),
    "phase-locked": WarningKind("Workers stay in lock-step", "run.start", doubts=1),
    "phases-not-mixed": WarningKind("The result depends on how workers start", "run.start", doubts=1),
    "phases-slow-to-mix": WarningKind("How workers start matters", "run.start"),
    "piled-traffic": WarningKind("One server has more traffic than the others", "strategy.variable_placement"),
    "pipeline-not-filled": WarningKind("The pipeline is not full", "training.micro_batches"),
    "servers-not-moved": WarningKind("Server times come from another host", "workload.server", doubts=1),
    "shared-beside-idle": WarningKind("Devices are shared while nodes are idle", "cluster.replicas_per_device"),
    "spot-without-job": WarningKind("Preemptions are not counted without a [job]", "cluster.price.preemption", doubts=1),
    "start-in-window": WarningKind("Workers start during the measured steps", "run.start_spread_s"),
    "steps-not-used": WarningKind("Number of steps has no effect", "run.steps"),
    "tail-not-seen": WarningKind("Too few measured steps to see the slowest worker", "workload.jitter", doubts=1),
    "tensors-between-nodes": WarningKind("Tensors split between nodes", "strategy.tensor"),
    "transport-not-felt": WarningKind("Transport has no effect", "cluster.transport"),
}
"""Every kind of warning that a result can carry, by its code; docs/reference.md explains each."""
