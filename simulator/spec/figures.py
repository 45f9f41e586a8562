"""The figures of which a result is made: estimates, quantiles, shares, stages, exchanges, those of the job, and warnings.

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
    """Mean over replications, and a 90% prediction interval for one real run of as many steps."""

    mean: float = Field(description="mean over replications")
    low: float = Field(description="low end of the 90% prediction interval")
    high: float = Field(description="high end of the 90% prediction interval")


class Quantiles(Spec):
    """Distribution of a time over steps, in seconds."""

    mean: float = Field(description="mean")
    p50: float = Field(description="median")
    p95: float = Field(description="95th percentile")
    p99: float = Field(description="99th percentile")


class Share(Spec):
    """A share with the 90% interval within which it is known."""

    mean: float = Field(ge=0, description="the share")
    low: float = Field(ge=0, description="low end of the 90% interval within which it is known")
    high: float = Field(ge=0, description="high end")

    @property
    def told(self) -> bool:
        """Return whether the runs tell how large it is."""
        return self.high - self.low <= _TOLD


_TOLD = 0.5
"""A share that may be anything within a wider range than this is not told."""


class Contribution(Spec):
    """What one uncertain quantity contributes to the variance of the throughput's logarithm, of which the interval is made."""

    name: str = Field(description="the quantity, or what the model is off by in one respect, or chance")
    kind: Literal["drawn", "model", "chance"] = Field(
        description="drawn: what fits and constants of practice leave open; model: what the model itself is off by; chance: what differs "
        "between runs, and what the draws do not explain"
    )
    first: Share = Field(description="share of the variance that is expected to go if it alone became known (first-order Sobol' index)")
    total: Share = Field(description="share that would stay if all else became known: with what it does together with others (total index)")


class Measurement(Spec):
    """A command that measures what widens the interval, and how wide the interval is expected to be afterwards."""

    command: str = Field(description="the command line; names in capitals are yours to fill in")
    narrows: tuple[str, ...] = Field(description="quantities that it narrows")
    throughput_samples_per_s: Estimate = Field(description="the same mean with the 90% interval that is expected afterwards")
    left: float = Field(ge=0, description="share of the interval's width that is left, in logarithms")
    at_best: bool = Field(description="whether that is the best case, since nothing tells what such a measurement leaves open")
    rests_on: str = Field(description="what that expectation rests on")


class Scatter(Spec):
    """What widens the interval of the throughput: standard deviations of its logarithm."""

    model: float = Field(ge=0, description="what the model is off by: the discrepancy")
    parameters: float = Field(ge=0, description="what the fits of workload and cluster leave open")
    luck: float = Field(ge=0, description="what differs between runs: jitter, starts, speeds of processes")

    @property
    def shares(self) -> tuple[float, float, float]:
        """Shares of the variance: model, parameters, luck; zeros where there is none."""
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
        """A row for each value: ``staleness``, ``updates`` that had it, and their ``share`` of all; of several, one after the other."""
        return [
            {"staleness": value, "updates": count, "share": count / sum(histogram.counts)}
            for histogram in items
            for value, count in zip(histogram.values, histogram.counts, strict=True)
        ]


class Staleness(Spec):
    """Updates applied between the read that an update was computed from and its own application."""

    mean: float = Field(description="mean over all updates")
    p50: int = Field(description="median")
    p95: int = Field(description="95th percentile")
    p99: int = Field(description="99th percentile")
    max: int = Field(description="largest")
    histogram: Histogram = Field(description="how many updates had which staleness")
    bound: int | None = Field(default=None, description="what it can be at most under stale-synchronous clocks: (n - 1) (2 bound + 1)")
    per_server_mean: tuple[float, ...] = Field(default=(), description="mean staleness, counted on each server by itself")
    per_server_p95: tuple[int, ...] = Field(default=(), description="95th percentile, counted on each server by itself")
    per_worker_mean: tuple[float, ...] = Field(
        default=(), description="mean staleness of each worker's updates; up to 1,024 workers are listed"
    )
    per_worker_p95: tuple[int, ...] = Field(
        default=(), description="95th percentile of each worker's updates: exact up to 16, to 12% above"
    )
    per_worker_max: tuple[int, ...] = Field(default=(), description="largest of each worker's updates")
    mixed_reads: float = Field(default=0.0, description="share of reads that found different versions on different servers")
    mixed_spread_mean: float = Field(default=0.0, description="updates between the newest and the oldest of those, mean over all reads")
    mixed_spread_max: int = Field(default=0, description="the most updates between the newest and the oldest of those versions")


class Breakdown(Spec):
    """Where the mean step's time goes, in seconds; the parts sum to ``step_time_s.mean``, and that times the throughput is the batch."""

    input: float = Field(description="waiting for input")
    compute: float = Field(description="forward and backward pass")
    exposed_communication: float = Field(description="communication that nothing hides")
    waiting: float = Field(description="waiting for others")
    apply: float = Field(description="applying the update")

    @property
    def total(self) -> float:
        """Seconds of the mean step."""
        return self.input + self.compute + self.exposed_communication + self.waiting + self.apply


class Placement(Spec):
    """Where the scenario's processes sit: what one would have to rent or to buy."""

    nodes: int = Field(description="machines in all; of a cluster of a fixed size, all of it")
    worker_nodes: int = Field(description="machines that hold replicas")
    server_nodes: int = Field(description="machines that hold parameter servers and nothing else")
    replicas_per_node: int = Field(description="replicas on a full machine")
    devices_per_node: int = Field(description="devices of a machine, in use or not")
    text: str = Field(description="all of that in words")


class Phase(Spec):
    """Whether asynchronous workers moved together (docs/metrics.md)."""

    order_at_start: float = Field(description="1: all workers at the same point of their steps; about 1 / sqrt(n): anywhere")
    order_at_end: float = Field(description="order of the workers' phases when the run ends")
    order_of_random_phases: float = Field(description="what n workers anywhere exceed with a chance of one in four")
    mixed_share: float = Field(description="share of replications in which the order fell to that of random phases")
    mixed_after_s: float | None = Field(default=None, description="median of when it did, of those replications")
    run_s: float = Field(default=0.0, description="mean length of a run, warm-up included")


class Reduced(Spec):
    """How buffers of one size were all-reduced."""

    size_bytes: float = Field(description="size of the buffer")
    algorithm: str = Field(description="algorithm that reduced it")
    protocol: str = Field(description="protocol that it was sent with")


class Stage(Spec):
    """One stage of a pipeline: what it holds, and where its devices' time goes; the four shares sum to 1."""

    layers: str = Field(description="the first and the last of its layers, of each chunk")
    layer_count: int = Field(description="how many layers it has")
    devices: int = Field(description="devices of all copies together")
    parameter_bytes: float = Field(
        description="bytes of its layers' parameters in one copy of the model, on all devices that share them together"
    )
    busy: float = Field(description="share of the time in which its devices compute")
    bubble: float = Field(description="share in which they wait for other stages or copies")
    communication: float = Field(description="share in which they wait for messages and collectives alone")
    input: float = Field(default=0.0, description="share in which they wait for their batch")
    staleness: int = Field(default=0, description="updates by which its gradients are late, exactly (PipeDream); 0: none")


class Exchange(Spec):
    """What devices exchange with each other in a step: one kind of collective, or of messages between stages."""

    among: Literal[
        "tensor", "experts", "tensor and experts", "host", "stages", "copies", "shards", "alike shards", "alike experts",
        "shards of experts", "tied stages",
    ] = Field(
        description="who: those that split tensors; that experts are spread over; a device and its host; neighbours in the pipeline; "
        "all copies of a stage; copies that share one state; copies that have the same part of it; copies that have the same experts; "
        "those of them that share one state of these; stages that have copies of the same variables"
    )  # fmt: skip
    does: str = Field(description="what is done: all-reduce, all-gather, activations, ...")
    devices: int = Field(description="devices that take part in one")
    links: Literal["in a node", "between nodes"] = Field(description="which links it has to cross")
    stage: int = Field(description="the stage for which it takes longest, to which the figures belong")
    times: int = Field(description="how often a device takes part in a step")
    size_bytes: float = Field(description="size of the buffers, or the messages, of a device's step together")
    seconds: float = Field(
        description="seconds that they take one after the other, had they the links for themselves and those that do the same"
    )
    amid: bool = Field(default=False, description="whether the next pass waits for it")


class JobParts(Spec):
    """Where the seconds of a job went, mean over replications; together its time."""

    startup: float = Field(description="time until the first step begins: processes, imports, the cluster, building the model")
    tracing: float = Field(description="by how much first steps, of training and of evaluation, take longer than later ones")
    first_epoch: float = Field(description="by how much the first epoch's steps take longer, while the input pipeline fills its cache")
    filling: float = Field(description="waiting for the first batch of each epoch")
    iterators: float = Field(default=0.0, description="waiting for the end of the last epoch's tf.data iterators")
    steps: float = Field(description="steps that are kept")
    evaluation: float = Field(description="passes over other data between epochs, until their tf.data iterators have ended")
    checkpoints: float = Field(description="time for which training waits for checkpoints")
    lost_work: float = Field(description="steps whose work a fault destroyed")
    down: float = Field(description="after faults: until they are noticed, and until what crashed is there again and has read a checkpoint")
    fewer_workers: float = Field(description="by how much steps take longer while workers are missing and the others go on")

    @property
    def of_steps(self) -> float:
        """Seconds of steps of any kind: what a throughput that is off makes longer or shorter; the rest is as it is given."""
        return self.steps + self.first_epoch + self.lost_work + self.fewer_workers + self.evaluation


class Epoch(Spec):
    """An epoch as it goes without faults: mean seconds."""

    number: int = Field(description="number of the epoch, from 1 on; of those that are alike the first")
    like_it: int = Field(description="how many epochs are alike, itself included")
    time_s: float = Field(description="time of the whole epoch")
    first_step_s: float = Field(description="time of its first step")
    step_s: float = Field(description="time of its later steps")
    steps: float = Field(description="how many steps it has")
    evaluation_s: float = Field(description="evaluation after it")
    checkpoint_s: float = Field(description="waiting for checkpoints during it")
    iterators_s: float = Field(default=0.0, description="waiting for the end of the last epoch's tf.data iterators, before it")


class Checkpointing(Spec):
    """How often the state is written, and how often it should be."""

    set_s: float | None = Field(
        default=None, description="time of steps between checkpoints that was set, or found best; null: set in steps or epochs"
    )
    interval_s: float = Field(description="mean time of steps between checkpoints: what was set, in whole steps")
    wall_s: float | None = Field(
        default=None, description="mean wall time from one checkpoint to the next where nothing fails: interval_s and cost_s"
    )
    cost_s: float = Field(description="time for which training waits, each time")
    size_bytes: float = Field(description="size of a checkpoint")
    best_s: float | None = Field(default=None, description="interval with which the job is expected to end soonest; none: nothing fails")
    young_s: float | None = Field(default=None, description="Young's first-order interval, sqrt(2 C M)")
    daly_s: float | None = Field(default=None, description="Daly's higher-order one")


class JobOutcome(Terse, only=("steps_share_of_each_replication", "away_node_s")):
    """The whole job: how long, for how much, and where the time went."""

    samples: float = Field(description="samples that are trained on, all epochs together")
    steps: float = Field(description="steps of the job, each of all replicas together; asynchronous: updates")
    epochs: float = Field(description="passes over the data")
    time_s: Estimate = Field(description="time until the job ends")
    cost_usd: Estimate | None = Field(
        default=None, description="of all nodes, without those that are taken away while they are; null: the price is not known"
    )
    samples_per_s: Estimate = Field(description="samples over time, all overheads included")
    samples_per_s_of_each_replication: tuple[float, ...] = Field(description="the distribution behind that interval")
    steps_share_of_each_replication: tuple[float, ...] = Field(
        default=(),
        description="share of the time of each in which steps are made, whether their work lasts or not; left out: no fault came",
    )
    goodput: Estimate = Field(
        description="share of the time in which steps were made that are kept, at full strength: of all runs together, "
        "and the interval of one run's"
    )
    parts_s: JobParts = Field(description="where the time goes")
    each_epoch: tuple[Epoch, ...] = Field(default=(), description="epoch by epoch, without faults; those that are alike once")
    checkpointing: Checkpointing | None = Field(default=None, description="how often the state is written; null: no checkpoints")
    mtbf_s: float | None = Field(
        default=None, description="mean time between faults of anything, as the given mean times say; null: nothing fails, or by a trace"
    )
    faults: float = Field(default=0.0, description="mean number of faults until the job ends, of the runs whose time time_s has")
    away_node_s: float = Field(default=0.0, description="mean time for which nodes were taken away, of all nodes together")
    given_up: float = Field(default=0.0, description="share of runs that are given up after too many restarts")


class Utilisation(Spec):
    """Busy share of each kind of resource: mean over all of the kind, and of the busiest one."""

    devices: float = Field(description="mean share of the time in which devices compute")
    links: float = Field(description="mean share of the links' bandwidth in use")
    servers: float = Field(description="mean share of the time in which servers work")
    busiest_link: float = Field(description="share of the link most in use")
    busiest_link_name: str = Field(description="name of the busiest link")
    busiest_server: float = Field(description="share of the server most in use")
    cores: float = Field(default=0.0, description="share in use of the cores that all nodes share; 0 where each has its own")


Limit = Literal[
    "compute", "input", "network", "server-network", "fabric", "host", "host-link", "host-cpu", "client", "server", "stragglers",
    "shared-cores", "coordinator", "latency", "apply", "pipeline-bubble", "slow-stage", "exchange",
]  # fmt: skip
"""What of a group limits a throughput, to sort by."""

LimitGroup = Literal["compute", "communication", "input", "servers", "stragglers", "pipeline", "coordinator"]
"""What limits a throughput, as people say it."""

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
"""The group of each limit. Memory is none: what does not fit is refused, and what makes it fit costs compute or communication."""


class Trial(Spec):
    """One change that was simulated for a few steps, with the same draws."""

    change: str = Field(description="the change in words: a device twice as fast")
    gain: float = Field(description="throughput over what it was, less 1")


def _as_trials(written: object) -> object:
    """Drop the sentence that earlier versions wrote."""
    return () if isinstance(written, str) else written


class Bottleneck(Spec):
    """What limits the throughput: a group, what of it, and at most two sentences."""

    name: Limit = Field(description="what of the group limits most, to sort by")
    group: LimitGroup = Field(default_factory=lambda known: GROUPS[known["name"]], description="what limits, to sort by")
    share: float | None = Field(default=None, description="share of a step that the group takes; null: not known")
    detail: str = Field(default="", description="the name in words, such as latency of 510 messages; empty: the group says it all")
    balance: Limit | None = Field(default=None, description="what of another group limits as much; null: one group alone limits")
    balance_share: float | None = Field(default=None, description="share of a step that the other group takes")
    larger: LimitGroup | None = Field(default=None, description="group that takes more of a step, though it limits less; null: none")
    larger_share: float | None = Field(default=None, description="share of a step that this one takes")
    text: str = Field(description="the share and the trials that matter most, in at most two sentences")
    remedy: str = Field(default="", description="what would help, in a sentence")
    tried: Annotated[tuple[Trial, ...], BeforeValidator(_as_trials)] = Field(
        default=(), description="trials of changes, the best first; empty: shares of a step decide"
    )

    @property
    def label(self) -> str:
        """The group, or both where two limit together; for reading."""
        return self.group if self.balance is None else f"{self.group} and {GROUPS[self.balance]}"

    @property
    def measured(self) -> str:
        """The text without the trials, which are its last sentence."""
        return f"{self.text.rpartition('. ')[0]}." if self.tried else self.text

    @property
    def in_words(self) -> str:
        """The label with its shares, and what of it: ``communication (60% of a step), mostly latency of 510 messages``.

        A larger group is told too: ``communication (41% of a step, compute takes 59%), mostly host CPU per message``.
        """
        shares = [format_share(share) for share in (self.share, self.balance_share) if share is not None]
        larger = f", {self.larger} takes {format_share(self.larger_share)}" if self.larger and self.larger_share else ""
        share = f" ({' and '.join(shares)} of a step{larger})" if shares else ""
        mostly = f", mostly {self.detail}" if self.detail and self.balance is None else ""
        return f"{self.label}{share}{mostly}"


class Assumed(Spec):
    """What was taken for something that the scenario leaves out, and why."""

    path: str = Field(description="dotted path of the key")
    value: str = Field(description="value that was taken")
    reason: str = Field(description="why")


class Coverage(Spec):
    """What speaks for one aspect of a prediction."""

    about: Literal["batch", "device", "workers"] = Field(description="which aspect")
    grade: Literal["checked", "interpolation", "uncovered"] = Field(
        description="checked: held against real runs of that kind; interpolation: between what was measured; uncovered: by nothing"
    )
    text: str = Field(description="what covers it, in a sentence")


class Warned(Spec):
    """Something that the reader must know before trusting the numbers."""

    code: str = Field(description="which warning, to sort by")
    path: str = Field(description="dotted path of the key that it is about")
    value: float | str = Field(description="value that the scenario has there")
    range: tuple[float, float] | None = Field(default=None, description="within which it is covered; null: there is none")
    text: str = Field(description="the warning in a sentence")

    @classmethod
    def of(cls, code: str, value: float | str, text: str, path: str = "", within: tuple[float, float] | None = None) -> Self:
        """Return the warning of a kind listed in :data:`WARNINGS`, which knows its path where all of that kind have the same."""
        return cls(code=code, path=path or WARNINGS[code].path, value=value, range=within, text=text)

    @property
    def in_tables(self) -> bool:
        """Return whether it is told below a table of several results too."""
        return self.code in WARNINGS and WARNINGS[self.code].in_tables

    @property
    def doubts(self) -> bool:
        """Return whether it questions the figures themselves."""
        return self.code in WARNINGS and WARNINGS[self.code].doubts

    @property
    def brief(self) -> str:
        """The warning in a few words, for an answer that names only its main doubts."""
        title = WARNINGS[self.code].title if self.code in WARNINGS else self.code
        brief = title[:1].lower() + title[1:] if title[1:2].islower() and not title.startswith("Keras") else title
        leaf = self.path.rpartition(".")[2]
        if self.code != "outside-calibration" or self.range is None:
            return brief
        value = self.value if isinstance(self.value, str) else written(self.value, kind_of_setting(leaf))
        what = {"workers": f"{value} workers", "batch_per_replica": f"batch {value}"}.get(leaf, f"{leaf.replace('_', ' ')} {value}")
        return f"{what}: outside what was validated ({format_interval(*self.range, kind_of_setting(leaf))})"


class WarningKind(NamedTuple):
    """What all warnings of a code have in common.

    Attributes
    ----------
    title
        Above them in a report.
    path
        Dotted path of the key that they are about; empty: they are about several.
    in_tables
        Whether it is an assumption, which is shown below a table of several results too.
    doubts
        Whether it questions the figures themselves, and so comes before advice on settings.
    """

    title: str
    path: str = ""
    in_tables: bool = False
    doubts: bool = False


WARNINGS: Mapping[str, WarningKind] = {
    "aligned-collective": WarningKind("All enter the all-reduce together", "strategy.algorithm", in_tables=True),
    "as-multiple": WarningKind("A multiple, not a percentage", in_tables=True),
    "assumed-network": WarningKind("The network is assumed, not measured", "cluster.basis", in_tables=True, doubts=True),
    "biased": WarningKind("Predictions of this kind were biased", "cluster.device", doubts=True),
    "class-without-nodes": WarningKind("A class without nodes", "cluster.node_classes"),
    "computed": WarningKind("Times are computed, not measured", "workload", doubts=True),
    "device-not-known": WarningKind("The workload's device is unknown", "workload.calibrated.device", in_tables=True, doubts=True),
    "disturbed-calibration": WarningKind("Calibrated on a busy machine", "workload.provenance", in_tables=True, doubts=True),
    "few-replications": WarningKind("Few replications: the interval assumes a normal distribution", "run.replications"),
    "free-apply": WarningKind("Applying gradients takes no time, since nothing gives it", "workload.server", in_tables=True, doubts=True),
    "gathers-not-hidden": WarningKind("Gathers take longer than the passes that hide them", "strategy.shard"),
    "host-bound": WarningKind("Launching kernels may take longer than computing", "workload", doubts=True),
    "implausible": WarningKind("A figure beyond any known hardware", in_tables=True, doubts=True),
    "iterator-ends": WarningKind("Epochs may stand still before they begin", "job.iterators"),
    "moved-device": WarningKind("Compute is scaled to another device", "workload.moved", in_tables=True, doubts=True),
    "neighbours-not-felt": WarningKind("Neighbours without effect", "cluster.background.on"),
    "no-effect": WarningKind("A key without effect", in_tables=True),
    "no-overlap": WarningKind("No overlap to slow down", "cluster.overlap_slowdown"),
    "no-sort": WarningKind("The link's rate is taken as what transfers get", "cluster.inter_node.sort", in_tables=True),
    "no-uncertainty": WarningKind("No uncertainty is given, so the interval is too narrow", in_tables=True, doubts=True),
    "one-batch": WarningKind("A smaller batch than the one that was timed", "workload.forward.base_s", doubts=True),
    "not-by-fit": WarningKind("Keras 3 fit() does not run it", "strategy.kind"),
    "not-calibrated": WarningKind("The measured range is not recorded", "workload.calibrated", in_tables=True, doubts=True),
    "one-bucket": WarningKind("One bucket holds all gradients, so none overlaps", "strategy.bucket_size_bytes"),
    "one-switch": WarningKind("Rails on one switch", "cluster.rails", in_tables=True),
    "step-with-servers": WarningKind("The measured step held more than compute", "workload.measured_with", doubts=True),
    "other-device": WarningKind("Measured on another device, used unchanged", "cluster.device", in_tables=True, doubts=True),
    "other-precision": WarningKind("Compute is scaled to another precision", "training.precision", doubts=True),
    "outside-calibration": WarningKind("Outside what was validated", doubts=True),
    "overridden": WarningKind("Set by the scenario itself", in_tables=True),
    "phase-locked": WarningKind("Workers stay in lock-step", "run.start", in_tables=True, doubts=True),
    "phases-not-mixed": WarningKind("The start decides", "run.start", doubts=True),
    "phases-slow-to-mix": WarningKind("The start matters", "run.start"),
    "piled-traffic": WarningKind("One server has more traffic than the others", "strategy.variable_placement"),
    "pipeline-not-filled": WarningKind("The pipeline is not filled", "training.micro_batches"),
    "servers-not-moved": WarningKind("Server times are those of another host", "workload.server", in_tables=True, doubts=True),
    "shared-beside-idle": WarningKind("Devices are shared while nodes are idle", "cluster.replicas_per_device", in_tables=True),
    "spot-without-job": WarningKind("Preemptions are not counted without a [job]", "cluster.price.preemption", doubts=True),
    "start-in-window": WarningKind("Workers start within the measured steps", "run.start_spread_s", in_tables=True),
    "steps-not-used": WarningKind("Steps without effect", "run.steps"),
    "tail-not-seen": WarningKind("Too few steps were measured to see the slowest worker", "workload.jitter", in_tables=True, doubts=True),
    "tensors-between-nodes": WarningKind("Tensors split between nodes", "strategy.tensor"),
    "transport-not-felt": WarningKind("Transport without effect", "cluster.transport", in_tables=True),
}
"""Every kind of warning that a result can carry, by its code; docs/reference.md explains each."""
