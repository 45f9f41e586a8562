"""Columns of a table of results: figures to compare, under plain names with their units.

:data:`COLUMNS` is the one list of them; frames, CSV files, the terminal, the report and tables of plans choose from it. Users know
columns by their names. ``of`` is the path of an attribute of a :class:`~simulator.results.results.Result`, as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.base.spec import Spec
from simulator.base.table import Column, Row
from simulator.base.text import Kind
from simulator.spec.figures import Breakdown, JobParts


def _ends(name: str, kind: Kind, heading: str, interval: str, of: str, short: str = "") -> Iterator[Column]:
    """The columns of both ends of an interval: ``{}`` stands for ``low`` and ``high``."""
    for end in ("low", "high"):
        titled = heading.format(end)
        yield Column(
            name.format(end), kind, titled[0].upper() + titled[1:], f"{end} end of {interval}", f"{of}.{end}", short=short.format(end)
        )


def _parts(parts: type[Spec], name: str, whole: str, of: str, headings: Sequence[str]) -> Iterator[Column]:
    """The columns of all parts of a time, in seconds: ``{}`` stands for the name of each."""
    for (part, field), heading in zip(parts.model_fields.items(), headings, strict=True):
        yield Column(name.format(part), "seconds", heading, f"part of {whole}: {field.description}", f"{of}.{part}")


_ALL = (
    Column("workload", "text", "Workload", "name of the workload", of="scenario.workload.name"),
    Column("cluster", "text", "Cluster", "name of the cluster", of="scenario.cluster.name", short="cluster"),
    Column("strategy", "text", "Strategy", "kind, with the mode or the algorithm", short="strategy"),
    Column("scaling", "text", "Scaling", "weak: batch per replica is fixed; strong: global batch is fixed"),
    Column("replicas", "count", "Replicas", "copies of the model that train", of="scenario.replicas", short="replicas"),
    Column("ranks", "count", "Ranks",
           "ranks: the replicas, or their parts on separate devices if a model is split",
           of="scenario.ranks", short="ranks"),
    Column("servers", "count", "Servers", "parameter servers", of="scenario.servers"),
    Column("nodes", "count", "Nodes", "machines in total; for a cluster of fixed size, all of it", of="placed.nodes", short="nodes"),
    Column("devices_per_node", "count", "Devices of a node", "devices per machine", of="placed.devices_per_node"),
    Column("placement", "text", "Placement", "placement of replicas and servers in words", of="placed.text"),
    Column("batch_per_replica", "count", "Batch of a replica", "samples that a replica takes per step", of="scenario.batch"),
    Column("global_batch", "count", "Batch of all replicas", "samples that all replicas take per step"),
    Column("throughput_samples_per_s", "throughput", "Throughput (samples/s)",
           "throughput, mean over replications", of="throughput_samples_per_s.mean", short="samples/s"),
    *_ends("throughput_{}", "throughput", "{}", "the throughput's 90% prediction interval, samples/s", "throughput_samples_per_s"),
    Column("tokens_per_s", "throughput", "Throughput (tokens/s)",
           "tokens per second, mean over replications; empty without sequences", of="tokens.per_s.mean", short="tokens/s"),
    *_ends("tokens_per_s_{}", "throughput", "{}", "its 90% prediction interval, tokens/s", "tokens.per_s"),
    Column("mfu", "share", "MFU", "model FLOPs utilisation by 6 N D, mean; empty if the device's peak is unknown", of="tokens.mfu.mean",
           short="MFU"),
    *_ends("mfu_{}", "share", "{} MFU", "the MFU's 90% prediction interval", "tokens.mfu"),
    Column("mfu_with_attention", "share", "MFU with attention", "model FLOPs utilisation by 6 N D + 12 L H Q T, mean",
           of="tokens.mfu_with_attention.mean"),
    Column("share_model", "share", "Variance by the model",
           "share of the variance of throughput due to model error"),
    Column("share_parameters", "share", "Variance by fits", "share of the variance of throughput due to fits of workload and cluster"),
    Column("share_luck", "share", "Variance by chance", "share of the variance of throughput due to differences between runs"),
    Column("updates_per_s", "throughput", "Updates/s", "updates of the model per second", of="updates_per_s.mean"),
    Column("speedup", "number", "Speed-up",
           "throughput divided by that of a single replica with the same draws, mean over replications", of="speedup.mean"),
    *_ends("speedup_{}", "number", "{} speed-up", "the speed-up's 90% prediction interval", "speedup"),
    Column("scaling_efficiency", "share", "Efficiency", "speed-up divided by the number of ranks, mean", of="scaling_efficiency.mean",
           short="eff."),
    *_ends("scaling_efficiency_{}", "share", "{} efficiency", "the efficiency's 90% prediction interval", "scaling_efficiency"),
    Column("step_mean_s", "seconds", "Step, mean", "mean time of a step", of="step_time_s.mean", short="step"),
    *_ends("step_mean_{}_s", "seconds", "Step, {} mean", "the 90% prediction interval of one run's mean step time", "mean_step_s"),
    Column("step_p50_s", "seconds", "Step, median", "median time of a step", of="step_time_s.p50"),
    Column("step_p95_s", "seconds", "Step, 95%", "95th percentile of the time of a step", of="step_time_s.p95"),
    Column("step_p99_s", "seconds", "Step, 99%", "99th percentile of the time of a step", of="step_time_s.p99"),
    Column("staleness_mean", "updates", "Mean staleness",
           "staleness: updates between an update's read and its application, mean", of="staleness.mean", short="stale"),
    *_ends("staleness_mean_{}", "updates", "{} mean staleness",
          "the 90% prediction interval of one run's mean staleness", "mean_staleness"),
    Column("staleness_p50", "count", "Staleness, median", "median staleness", of="staleness.p50"),
    Column("staleness_p95", "count", "Staleness, 95%", "95th percentile of the staleness", of="staleness.p95"),
    Column("staleness_p99", "count", "Staleness, 99%", "99th percentile of the staleness", of="staleness.p99"),
    Column("staleness_max", "count", "Staleness, most", "largest staleness", of="staleness.max"),
    Column("dropped_share", "share", "Gradients dropped", "share of gradients that came too late or were skipped by loss scaling"),
    *_parts(Breakdown, "{}_s", "the mean step", "breakdown_s",
           ("Input", "Compute", "Exposed communication", "Waiting for others", "Apply")),
    Column("hidden_communication_s", "seconds", "Hidden communication",
           "communication while the replica computes; not part of the step"),
    Column("devices_busy", "share", "Devices busy",
           "share of the time in which devices compute, mean of all", of="utilisation.devices"),
    Column("links_busy", "share", "Links busy", "share of the links' bandwidth in use, mean of all", of="utilisation.links"),
    Column("servers_busy", "share", "Servers busy", "share of the time in which servers work, mean of all", of="utilisation.servers"),
    Column("busiest_link", "text", "Name of the busiest link", "name of the busiest link", of="utilisation.busiest_link_name"),
    Column("busiest_link_busy", "share", "Busiest link",
           "share of the busiest link's bandwidth in use", of="utilisation.busiest_link"),
    Column("busiest_server_busy", "share", "Busiest server",
           "share of the time in which the busiest server works", of="utilisation.busiest_server"),
    Column("limit", "text", "Limit", "what limits the throughput: compute, communication, ...", of="bottleneck.group", short="limit"),
    Column("limit_share", "share", "Share of the limit", "share of a step that the limit takes", of="bottleneck.share"),
    Column("bottleneck", "text", "Limit in detail", "the limit in detail, in a word or two", of="bottleneck.name", short="bottleneck"),
    Column("balance", "text", "In balance with", "limit of another group that matters equally; else empty"),
    Column("usd_per_hour", "hourly", "Cost of an hour", "US dollars per hour for all nodes; empty without a price", short="per hour"),
    Column("usd_per_million_samples", "usd", "Cost of a million samples", "US dollars for a million samples, mean",
           of="cost.mean", short="per 1M"),
    *_ends("usd_per_million_samples_{}", "usd", "{} cost", "the cost of a million samples, from the throughput's interval", "cost"),
    Column("usd_per_billion_tokens", "usd", "Cost of a billion tokens", "US dollars for a billion tokens, mean", of="tokens_cost.mean",
           short="per 1B"),
    *_ends("usd_per_billion_tokens_{}", "usd", "{} cost", "that cost, from the throughput's interval", "tokens_cost"),
    Column("warnings", "count", "Warnings", "number of warnings of the result"),
    Column("coverage", "text", "Coverage", "weakest grade of evidence: checked, interpolation or uncovered", of="grade"),
    Column("extrapolated", "any", "Beyond what was measured", "whether some aspect is not covered by any measurement"),
    Column("assumed", "text", "Assumed", "keys left out of the scenario and set to TensorFlow's default"),
    Column("failed", "text", "Failed", "reason if there is no result; else empty"),
    Column("scenario_hash", "text", "Scenario", "hash of the scenario: the same for the same scenario"),
    Column("monte_carlo_error_samples_per_s", "throughput", "Monte Carlo error",
           "standard error of the mean throughput over replications, samples/s", of="monte_carlo_error"),
    *_ends("updates_per_s_{}", "throughput", "{} updates/s", "the 90% prediction interval of the updates per second", "updates_per_s"),
    Column("wasted_samples_per_s", "throughput", "Samples/s dropped", "samples per second whose gradients came too late"),
    Column("staleness_bound", "count", "Bound of staleness",
           "largest staleness that the strategy allows; empty: unbounded", of="staleness.bound"),
    Column("mixed_reads_share", "share", "Mixed reads",
           "share of reads that mix versions of the variables", of="staleness.mixed_reads"),
    Column("bottleneck_text", "text", "What limits it", "what limits the throughput, in two sentences at most", of="bottleneck.text"),
    Column("steps_of_a_replica", "count", "Steps of each", "steps per replica; empty if the job's steps are given"),
    Column("job_steps", "count", "Steps of the job",
           "steps of all replicas together; empty if steps are given per replica", of="scenario.run.job_steps"),
    Column("replications", "count", "Replications", "number of replications", of="scenario.run.replications"),
    Column("seed", "any", "Seed", "seed of all random numbers", of="scenario.run.seed"),
    Column("events", "count", "Events", "events of the simulation kernel, all replications"),
    Column("job_time_s", "seconds", "Time of the job", "mean time until the whole job ends", of="job.time_s.mean", short="whole job"),
    *_ends("job_time_{}_s", "seconds", "{} time of the job",
          "the 90% prediction interval of the time of the job", "job.time_s", short="{}"),
    Column("job_cost_usd", "usd", "Cost of the job",
           "US dollars for all nodes until the job ends, mean; empty without a price", of="job.cost_usd.mean", short="cost"),
    *_ends("job_cost_{}_usd", "usd", "{} cost of the job", "the 90% prediction interval of the cost of the job", "job.cost_usd"),
    Column("goodput", "share", "Goodput",
           "share of the job's mean time spent in steps that were kept, at full strength",
           of="job.goodput.mean", short="goodput"),
    *_ends("goodput_{}", "share", "{} goodput", "the goodput's 90% prediction interval", "job.goodput"),
    Column("job_samples_per_s", "throughput", "Samples/s of the job",
           "samples over the job's time, all overheads included", of="job.samples_per_s.mean"),
    *_parts(JobParts, "job_{}_s", "the job's time", "job.parts_s",
           ("Start-up", "Tracing", "Slower first epoch", "First batches", "Ends of iterators", "Steps kept", "Evaluation", "Checkpoints",
            "Lost work", "Down", "Fewer workers")),
    Column("job_samples", "count", "Samples of the job", "samples that the job trains on", of="job.samples"),
    Column("job_epochs", "number", "Epochs", "passes over the data set", of="job.epochs"),
    Column("job_faults", "number", "Faults", "mean number of faults until the job ends", of="job.faults"),
    Column("checkpoint_interval_s", "seconds", "Between checkpoints",
           "mean time of steps between checkpoints", of="job.checkpointing.interval_s"),
    Column("best_checkpoint_interval_s", "seconds", "Best between checkpoints",
           "interval between checkpoints that minimises the expected time of the job", of="job.checkpointing.best_s"),
)  # fmt: skip

COLUMNS: dict[str, Column] = {column.name: column for column in _ALL}
"""Every column by name: meaning, format and source; docs/metrics.md has the formulas."""

OF_JOB = (
    "job_time_s", "job_time_low_s", "job_time_high_s", "job_cost_usd", "goodput",
)  # fmt: skip
"""Columns of a small table if any result has a whole job."""

IN_SAMPLES = "throughput_samples_per_s", "throughput_low", "throughput_high"
IN_TOKENS = "tokens_per_s", "tokens_per_s_low", "tokens_per_s_high"
"""Columns of the throughput and its interval, which tables show in tokens if all results have sequences."""

BRIEF = (
    "strategy", "cluster", "scaling", "replicas", "nodes", *IN_SAMPLES, *IN_TOKENS, "mfu",
    "scaling_efficiency", "staleness_mean", "usd_per_million_samples", *OF_JOB, "limit", "bottleneck", "balance", "warnings", "failed",
)  # fmt: skip
"""Columns of a small table."""


def brief_of(rows: Sequence[Row]) -> list[str]:
    """Columns of :data:`BRIEF` for some rows: without those of jobs and tokens that none has, and the throughput in one unit."""
    lacking = {name for name in (*OF_JOB, *IN_TOKENS, "mfu") if all(row.get(name) is None for row in rows)}
    doubled = IN_TOKENS if any(row.get(IN_TOKENS[0]) is None for row in rows) else IN_SAMPLES
    return [name for name in BRIEF if name not in lacking and name not in doubled]
