"""Columns of a table of results: the figures that one compares, under plain names with their units.

:data:`COLUMNS` is the one list of them; frames, CSV files, the terminal and the report choose from it. Users know columns by their
names. ``of`` is the path of an attribute of a :class:`~simulator.results.results.Result`, as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.base.table import Cell, Column


@dataclass(frozen=True)
class ResultColumn(Column):
    """A column of a table of results.

    Attributes
    ----------
    of
        Which figure of a result it is, as a dotted name; the column's own name where it is left out.
    """

    of: str = ""

    def read(self, outcome: object, facts: Mapping[str, Any]) -> Cell:
        """Its value for an outcome: one of the facts that follow from it, else an attribute; None where there is none.

        A dotted name ends where something is None.
        """
        first, *rest = (self.of or self.name).split(".")
        value = facts[first] if first in facts else getattr(outcome, first, None)
        for part in rest:
            value = None if value is None else getattr(value, part)
        return value


_ALL = (
    ResultColumn("workload", "text", "Workload", "name of the workload", of="scenario.workload.name"),
    ResultColumn("cluster", "text", "Cluster", "name of the cluster", of="scenario.cluster.name"),
    ResultColumn("strategy", "text", "Strategy", "kind, with the mode or the algorithm"),
    ResultColumn("scaling", "text", "Scaling", "weak: each replica keeps its batch; strong: all together keep theirs"),
    ResultColumn("replicas", "count", "Replicas", "copies of the model that train", of="scenario.replicas"),
    ResultColumn("ranks", "count", "Ranks",
                 "those that make steps: the replicas, or where these are cut, their parts, one on each device", of="scenario.ranks"),
    ResultColumn("servers", "count", "Servers", "parameter servers", of="scenario.servers"),
    ResultColumn("nodes", "count", "Nodes", "machines in all; of a cluster of a fixed size, all of it", of="placed.nodes"),
    ResultColumn("devices_per_node", "count", "Devices of a node", "devices of a machine", of="placed.devices_per_node"),
    ResultColumn("placement", "text", "Placement", "where replicas and servers sit, in words", of="placed.text"),
    ResultColumn("batch_per_replica", "count", "Batch of a replica", "samples that a replica takes per step", of="scenario.batch"),
    ResultColumn("global_batch", "count", "Batch of all replicas", "samples that all replicas take per step"),
    ResultColumn("throughput_samples_per_s", "throughput", "Throughput (samples/s)",
                 "throughput, mean over replications", of="throughput_samples_per_s.mean"),
    ResultColumn("throughput_low", "throughput", "Low",
                 "low end of the throughput's 90% prediction interval, samples/s", of="throughput_samples_per_s.low"),
    ResultColumn("throughput_high", "throughput", "High",
                 "high end of the throughput's 90% prediction interval, samples/s", of="throughput_samples_per_s.high"),
    ResultColumn("share_model", "share", "Variance by the model",
                 "of the variance behind the throughput's interval: what the model is off by"),
    ResultColumn("share_parameters", "share", "Variance by fits", "of that variance: what fits of workload and cluster leave open"),
    ResultColumn("share_luck", "share", "Variance by chance", "of that variance: what differs from run to run"),
    ResultColumn("updates_per_s", "throughput", "Updates/s", "updates of the model per second", of="updates_per_s.mean"),
    ResultColumn("speedup", "number", "Speed-up",
                 "throughput over that of one replica with the same draws, mean over replications", of="speedup.mean"),
    ResultColumn("speedup_low", "number", "Low speed-up", "low end of the speed-up's 90% prediction interval", of="speedup.low"),
    ResultColumn("speedup_high", "number", "High speed-up", "high end of the speed-up's 90% prediction interval", of="speedup.high"),
    ResultColumn("scaling_efficiency", "share", "Efficiency", "speed-up over ranks, mean", of="scaling_efficiency.mean"),
    ResultColumn("scaling_efficiency_low", "share", "Low efficiency",
                 "low end of the efficiency's 90% prediction interval", of="scaling_efficiency.low"),
    ResultColumn("scaling_efficiency_high", "share", "High efficiency",
                 "high end of the efficiency's 90% prediction interval", of="scaling_efficiency.high"),
    ResultColumn("step_mean_s", "seconds", "Step, mean", "mean time of a step", of="step_time_s.mean"),
    ResultColumn("step_mean_low_s", "seconds", "Step, low mean",
                 "low end of the 90% prediction interval of one run's mean step time", of="mean_step_s.low"),
    ResultColumn("step_mean_high_s", "seconds", "Step, high mean",
                 "high end of the 90% prediction interval of one run's mean step time", of="mean_step_s.high"),
    ResultColumn("step_p50_s", "seconds", "Step, median", "median time of a step", of="step_time_s.p50"),
    ResultColumn("step_p95_s", "seconds", "Step, 95%", "95th percentile of the time of a step", of="step_time_s.p95"),
    ResultColumn("step_p99_s", "seconds", "Step, 99%", "99th percentile of the time of a step", of="step_time_s.p99"),
    ResultColumn("staleness_mean", "updates", "Mean staleness",
                 "staleness: updates between an update's read and its application, mean", of="staleness.mean"),
    ResultColumn("staleness_mean_low", "updates", "Low mean staleness",
                 "low end of the 90% prediction interval of one run's mean staleness", of="mean_staleness.low"),
    ResultColumn("staleness_mean_high", "updates", "High mean staleness",
                 "high end of the 90% prediction interval of one run's mean staleness", of="mean_staleness.high"),
    ResultColumn("staleness_p50", "count", "Staleness, median", "median staleness", of="staleness.p50"),
    ResultColumn("staleness_p95", "count", "Staleness, 95%", "95th percentile of the staleness", of="staleness.p95"),
    ResultColumn("staleness_p99", "count", "Staleness, 99%", "99th percentile of the staleness", of="staleness.p99"),
    ResultColumn("staleness_max", "count", "Staleness, most", "largest staleness", of="staleness.max"),
    ResultColumn("dropped_share", "share", "Gradients dropped", "share of gradients that came too late, or were skipped by loss scaling"),
    ResultColumn("input_s", "seconds", "Input", "of the mean step: waiting for input", of="breakdown_s.input"),
    ResultColumn("compute_s", "seconds", "Compute", "of the mean step: forward and backward pass", of="breakdown_s.compute"),
    ResultColumn("exposed_communication_s", "seconds", "Exposed communication",
                 "of the mean step: communication that nothing hides", of="breakdown_s.exposed_communication"),
    ResultColumn("waiting_s", "seconds", "Waiting for others", "of the mean step: waiting for others", of="breakdown_s.waiting"),
    ResultColumn("apply_s", "seconds", "Apply", "of the mean step: applying the update", of="breakdown_s.apply"),
    ResultColumn("hidden_communication_s", "seconds", "Hidden communication",
                 "communication while the replica computes; no part of the step"),
    ResultColumn("devices_busy", "share", "Devices busy",
                 "share of the time in which devices compute, mean of all", of="utilisation.devices"),
    ResultColumn("links_busy", "share", "Links busy", "share of the links' bandwidth in use, mean of all", of="utilisation.links"),
    ResultColumn("servers_busy", "share", "Servers busy", "share of the time in which servers work, mean of all", of="utilisation.servers"),
    ResultColumn("busiest_link", "text", "Name of the busiest link", "name of the link most in use", of="utilisation.busiest_link_name"),
    ResultColumn("busiest_link_busy", "share", "Busiest link",
                 "share of the bandwidth in use of the link most in use", of="utilisation.busiest_link"),
    ResultColumn("busiest_server_busy", "share", "Busiest server",
                 "share of the time in which the server most in use works", of="utilisation.busiest_server"),
    ResultColumn("bottleneck", "text", "Limit", "what limits the throughput", of="bottleneck.name"),
    ResultColumn("balance", "text", "In balance with",
                 "what takes nearly as much of a step, so that neither alone is the limit; else empty"),
    ResultColumn("usd_per_hour", "hourly", "Cost of an hour", "US dollars per hour for all nodes; empty without a price"),
    ResultColumn("usd_per_million_samples", "usd", "Cost of a million samples", "US dollars for a million samples, mean", of="cost.mean"),
    ResultColumn("usd_per_million_samples_low", "usd", "Low cost",
                 "low end of the cost of a million samples, from the throughput's interval", of="cost.low"),
    ResultColumn("usd_per_million_samples_high", "usd", "High cost",
                 "high end of the cost of a million samples, from the throughput's interval", of="cost.high"),
    ResultColumn("warnings", "count", "Warnings", "how many warnings the result carries"),
    ResultColumn("coverage", "text", "Coverage", "weakest grade of what speaks for it: checked, interpolation or uncovered", of="grade"),
    ResultColumn("extrapolated", "any", "Beyond what was measured", "whether some aspect of it is covered by nothing that was measured"),
    ResultColumn("assumed", "text", "Assumed", "what the scenario leaves out and was taken as TensorFlow does it"),
    ResultColumn("failed", "text", "Failed", "why there is no result; else empty"),
    ResultColumn("scenario_hash", "text", "Scenario", "hash of the scenario: the same for the same scenario"),
    ResultColumn("monte_carlo_error_samples_per_s", "throughput", "Monte Carlo error",
                 "standard error of the mean throughput over replications, samples/s", of="monte_carlo_error"),
    ResultColumn("updates_per_s_low", "throughput", "Low updates/s",
                 "low end of the 90% prediction interval of the updates per second", of="updates_per_s.low"),
    ResultColumn("updates_per_s_high", "throughput", "High updates/s",
                 "high end of the 90% prediction interval of the updates per second", of="updates_per_s.high"),
    ResultColumn("wasted_samples_per_s", "throughput", "Samples/s dropped", "samples per second whose gradients came too late"),
    ResultColumn("staleness_bound", "count", "Bound of staleness",
                 "most that the strategy allows; empty where nothing bounds it", of="staleness.bound"),
    ResultColumn("mixed_reads_share", "share", "Mixed reads",
                 "share of reads that mix versions of the variables", of="staleness.mixed_reads"),
    ResultColumn("bottleneck_text", "text", "What limits it", "what limits the throughput, in a sentence", of="bottleneck.text"),
    ResultColumn("steps_of_a_replica", "count", "Steps of each", "steps that each replica makes; empty where the job has as many in all"),
    ResultColumn("job_steps", "count", "Steps of the job",
                 "steps of all replicas together; empty where each has its own", of="scenario.run.job_steps"),
    ResultColumn("replications", "count", "Replications", "how often it is simulated", of="scenario.run.replications"),
    ResultColumn("seed", "any", "Seed", "seed of all random numbers", of="scenario.run.seed"),
    ResultColumn("events", "count", "Events", "events of the simulation kernel, all replications"),
    ResultColumn("job_time_s", "seconds", "Time of the job", "mean time until the whole job ends", of="job.time_s.mean"),
    ResultColumn("job_time_low_s", "seconds", "Low time of the job",
                 "low end of the 90% prediction interval of the time of the job", of="job.time_s.low"),
    ResultColumn("job_time_high_s", "seconds", "High time of the job",
                 "high end of the 90% prediction interval of the time of the job", of="job.time_s.high"),
    ResultColumn("job_cost_usd", "usd", "Cost of the job",
                 "US dollars for all nodes until the job ends, mean; empty without a price", of="job.cost_usd.mean"),
    ResultColumn("job_cost_low_usd", "usd", "Low cost of the job",
                 "low end of the 90% prediction interval of the cost of the job", of="job.cost_usd.low"),
    ResultColumn("job_cost_high_usd", "usd", "High cost of the job",
                 "high end of the 90% prediction interval of the cost of the job", of="job.cost_usd.high"),
    ResultColumn("goodput", "share", "Goodput",
                 "share of the job's mean time in which steps were made that are kept, at full strength", of="job.goodput.mean"),
    ResultColumn("goodput_low", "share", "Low goodput", "low end of the goodput's 90% prediction interval", of="job.goodput.low"),
    ResultColumn("goodput_high", "share", "High goodput", "high end of the goodput's 90% prediction interval", of="job.goodput.high"),
    ResultColumn("job_samples_per_s", "throughput", "Samples/s of the job",
                 "samples over the job's time, all overheads included", of="job.samples_per_s.mean"),
    ResultColumn("job_startup_s", "seconds", "Start-up", "of the job's time: until the first step begins", of="job.parts_s.startup"),
    ResultColumn("job_tracing_s", "seconds", "Tracing",
                 "of the job's time: by which first steps take longer than later ones", of="job.parts_s.tracing"),
    ResultColumn("job_first_epoch_s", "seconds", "Slower first epoch",
                 "of the job's time: by which the first epoch's steps take longer, while the input pipeline fills its cache",
                 of="job.parts_s.first_epoch"),
    ResultColumn("job_filling_s", "seconds", "First batches",
                 "of the job's time: waiting for the first batch of each epoch", of="job.parts_s.filling"),
    ResultColumn("job_iterators_s", "seconds", "Ends of iterators",
                 "of the job's time: waiting for the end of the last epoch's tf.data iterators",
                 of="job.parts_s.iterators"),
    ResultColumn("job_steps_s", "seconds", "Steps kept", "of the job's time: steps that are kept", of="job.parts_s.steps"),
    ResultColumn("job_evaluation_s", "seconds", "Evaluation", "of the job's time: evaluation", of="job.parts_s.evaluation"),
    ResultColumn("job_checkpoints_s", "seconds", "Checkpoints",
                 "of the job's time: for which training waits for checkpoints", of="job.parts_s.checkpoints"),
    ResultColumn("job_lost_work_s", "seconds", "Lost work",
                 "of the job's time: steps whose work a fault destroyed", of="job.parts_s.lost_work"),
    ResultColumn("job_down_s", "seconds", "Down",
                 "of the job's time: after faults, until what crashed is there again and has read a checkpoint", of="job.parts_s.down"),
    ResultColumn("job_fewer_workers_s", "seconds", "Fewer workers",
                 "of the job's time: by which steps take longer while workers are missing", of="job.parts_s.fewer_workers"),
    ResultColumn("job_samples", "count", "Samples of the job", "samples that the job trains on in all", of="job.samples"),
    ResultColumn("job_epochs", "number", "Epochs", "passes over the data set", of="job.epochs"),
    ResultColumn("job_faults", "number", "Faults", "mean number of faults until the job ends", of="job.faults"),
    ResultColumn("checkpoint_interval_s", "seconds", "Between checkpoints",
                 "mean time of steps between checkpoints", of="job.checkpointing.interval_s"),
    ResultColumn("best_checkpoint_interval_s", "seconds", "Best between checkpoints",
                 "interval between checkpoints with which the job is expected to end soonest", of="job.checkpointing.best_s"),
)  # fmt: skip

COLUMNS: dict[str, ResultColumn] = {column.name: column for column in _ALL}
"""Every column by its name: what it means, how it is written, what it is of; docs/metrics.md has the formulas."""

OF_JOB = (
    "job_time_s", "job_time_low_s", "job_time_high_s", "job_cost_usd", "goodput",
)  # fmt: skip
"""Columns that a small table shows where any result is of a whole job."""

BRIEF = (
    "strategy", "cluster", "scaling", "replicas", "nodes", "throughput_samples_per_s", "throughput_low", "throughput_high",
    "scaling_efficiency", "staleness_mean", "usd_per_million_samples", *OF_JOB, "bottleneck", "balance", "warnings", "failed",
)  # fmt: skip
"""Of those, the columns that a small table shows."""
