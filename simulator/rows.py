"""Results as rows of a table: the figures that one compares, each with its name, how it is written, and what it means.

This is the one list of them: frames and CSV have them under their names, with the unit; reports and
terminals choose from them, and show their headings.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.table import Column

__all__ = ["BRIEF", "COLUMNS", "MORE"]

_COLUMNS = (
    Column("workload", "text", "Workload", "name of the workload"),
    Column("cluster", "text", "Cluster", "name of the cluster"),
    Column("strategy", "text", "Strategy", "kind, with the mode or the algorithm"),
    Column("scaling", "text", "Scaling", "weak: each replica keeps its batch; strong: all together keep theirs"),
    Column("replicas", "count", "Replicas", "copies of the model that train"),
    Column("servers", "count", "Servers", "parameter servers"),
    Column("nodes", "count", "Nodes", "machines in all; of a cluster of a fixed size, all of it"),
    Column("devices_per_node", "count", "Devices of a node", "devices of a machine"),
    Column("placement", "text", "Placement", "where replicas and servers sit, in words"),
    Column("batch_per_replica", "count", "Batch of a replica", "samples that a replica takes a step"),
    Column("global_batch", "count", "Batch of all replicas", "samples that all replicas take a step"),
    Column("throughput_samples_per_s", "number", "Throughput (samples/s)", "mean over replications"),
    Column("throughput_low", "number", "Low", "low end of the 90% prediction interval, samples/s"),
    Column("throughput_high", "number", "High", "high end"),
    Column("share_model", "share", "Variance: model", "of the variance behind that interval: what the model is off by"),
    Column("share_parameters", "share", "Variance: fits", "what fits of workload and cluster leave open"),
    Column("share_luck", "share", "Variance: runs", "what differs from run to run"),
    Column("updates_per_s", "number", "Updates/s", "updates of the model a second"),
    Column("speedup", "number", "Speed-up", "throughput over that of one replica with the same draws, mean over replications"),
    Column("speedup_low", "number", "Low speed-up", "low end of its 90% prediction interval"),
    Column("speedup_high", "number", "High speed-up", "high end"),
    Column("scaling_efficiency", "share", "Efficiency", "speed-up over replicas, mean"),
    Column("scaling_efficiency_low", "share", "Low efficiency", "low end of its 90% prediction interval"),
    Column("scaling_efficiency_high", "share", "High efficiency", "high end"),
    Column("step_mean_s", "seconds", "Mean step", "mean time of a step"),
    Column("step_mean_low_s", "seconds", "Low mean step", "low end of the 90% prediction interval of one run's mean"),
    Column("step_mean_high_s", "seconds", "High mean step", "high end"),
    Column("step_p50_s", "seconds", "Step, median", "its median"),
    Column("step_p95_s", "seconds", "Step, 95%", "its 95th percentile"),
    Column("step_p99_s", "seconds", "Step, 99%", "its 99th percentile"),
    Column("staleness_mean", "number", "Mean staleness", "updates between an update's read and its application, mean"),
    Column("staleness_mean_low", "number", "Low mean staleness", "low end of the 90% prediction interval of one run's mean"),
    Column("staleness_mean_high", "number", "High mean staleness", "high end"),
    Column("staleness_p50", "count", "Staleness, median", "median"),
    Column("staleness_p95", "count", "Staleness, 95%", "95th percentile"),
    Column("staleness_p99", "count", "Staleness, 99%", "99th percentile"),
    Column("staleness_max", "count", "Staleness, most", "largest"),
    Column("dropped_share", "share", "Gradients dropped", "share of gradients that came too late"),
    Column("input_s", "seconds", "Input", "of the mean step: waiting for input"),
    Column("compute_s", "seconds", "Compute", "of the mean step: forward and backward pass"),
    Column("exposed_communication_s", "seconds", "Exposed communication", "of the mean step: communication that nothing hides"),
    Column("waiting_s", "seconds", "Waiting for others", "of the mean step: waiting for others"),
    Column("apply_s", "seconds", "Apply", "of the mean step: applying the update"),
    Column("hidden_communication_s", "seconds", "Hidden communication", "communication beside compute; no part of the step"),
    Column("devices_busy", "share", "Devices busy", "share of the time in which devices compute, mean of all"),
    Column("links_busy", "share", "Links busy", "share of the links' bandwidth in use, mean of all"),
    Column("servers_busy", "share", "Servers busy", "share of the time in which servers work, mean of all"),
    Column("busiest_link", "text", "Name of the busiest link", "name of the link most in use"),
    Column("busiest_link_busy", "share", "Busiest link", "its share"),
    Column("busiest_server_busy", "share", "Busiest server", "share of the server most in use"),
    Column("bottleneck", "text", "Limit", "what limits the throughput"),
    Column("balance", "text", "Nearly as much", "what takes nearly as much of a step, so that neither alone is the limit; else empty"),
    Column("usd_per_hour", "hourly", "Cost of an hour", "US dollars an hour for all nodes; empty without a price"),
    Column("usd_per_million_samples", "usd", "Cost of a million samples", "US dollars for a million samples, mean"),
    Column("usd_per_million_samples_low", "usd", "Low cost", "low end, from the throughput's interval"),
    Column("usd_per_million_samples_high", "usd", "High cost", "high end"),
    Column("warnings", "count", "Warnings", "how many the result carries"),
    Column("coverage", "text", "Coverage", "weakest grade of what speaks for it: checked, interpolation or uncovered"),
    Column("extrapolated", "any", "Beyond what was measured", "whether some aspect of it is covered by nothing that was measured"),
    Column("assumed", "text", "Assumed", "what the scenario leaves out and was taken as TensorFlow does it"),
    Column("failed", "text", "Failed", "why there is no result; else empty"),
    Column("scenario_hash", "text", "Scenario", "of the scenario"),
)
_MORE = (
    Column(
        "monte_carlo_error_samples_per_s", "number", "Monte Carlo error", "what more replications would still change of the mean throughput"
    ),
    Column("updates_per_s_low", "number", "Low updates/s", "low end of the 90% prediction interval"),
    Column("updates_per_s_high", "number", "High updates/s", "high end"),
    Column("wasted_samples_per_s", "number", "Samples/s dropped", "computed for gradients that came too late"),
    Column("staleness_bound", "count", "Staleness, bound", "what the strategy allows; empty where it sets none"),
    Column("mixed_reads_share", "share", "Mixed reads", "share of reads that saw some servers before and others after an update"),
    Column("cores_busy", "share", "Cores busy", "share of the cores in use that all nodes share; empty where they share none"),
    Column("bottleneck_label", "text", "Limited by", "what limits the throughput, in a few words"),
    Column("bottleneck_text", "text", "What limits it", "the same as a sentence, with its figures"),
    Column("all_reduce", "text", "All-reduce", "algorithms and protocols that were taken"),
    Column("calibrated", "any", "Calibrated", "whether the workload says what was measured of it"),
    Column("steps_of_a_replica", "count", "Steps of each", "steps of a replica; empty where the job has a number of steps"),
    Column("job_steps", "count", "Steps of the job", "steps of all replicas together"),
    Column("replications", "count", "Replications", "runs that were simulated"),
    Column("seed", "text", "Seed", "of all random numbers"),
    Column("events", "count", "Events", "that the engine worked through"),
)

COLUMNS: Mapping[str, Column] = {its.name: its for its in _COLUMNS}
"""Every column of a table of results, by its name; docs/metrics.md has the formulas."""

MORE: Mapping[str, Column] = {its.name: its for its in _MORE}
"""What else there is to know of a result (:meth:`simulator.results.Result.more`), for reports and what they save."""

BRIEF = (
    "strategy", "cluster", "scaling", "replicas", "nodes", "throughput_samples_per_s", "throughput_low", "throughput_high",
    "scaling_efficiency", "staleness_mean", "usd_per_million_samples", "bottleneck", "balance", "warnings", "failed",
)  # fmt: skip
"""Of those, the columns that a small table shows."""
