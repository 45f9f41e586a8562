"""Warnings of a result, to read before trusting it, such as assumptions and extrapolation.

Title and path of each kind are in ``WARNINGS`` of ``simulator.spec.figures``, and docs/reference.md explains it. Some warnings come from
elsewhere: misread.py, a strategy's ``avoided``, ``warned_of`` of ``simulator.job.outcome``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from simulator.base.text import counted, format_bytes, format_number, format_rate, format_seconds, format_share, listed
from simulator.resolve.measured_defaults import felt_by, with_nominal_defaults
from simulator.resolve.published_throughputs import same_device
from simulator.resolve.resolve import Asked, start_of
from simulator.results.inadequacy import bias_of, coverage, launching, validated_workers
from simulator.results.intervals import FEWEST_REPLICATIONS
from simulator.results.misread import misread
from simulator.scenario import Resolved
from simulator.spec.accelerator import accelerator_named
from simulator.spec.constants import constants
from simulator.spec.figures import Exchange, Phase, Tokens, Warned
from simulator.spec.uncertainty import Uncertainty
from simulator.spec.workload import Workload
from simulator.strategies.pipelines import pipelines
from simulator.strategies.strategy import outside_fit


def warnings_of(
    asked: Asked, phase: Phase | None = None, tokens: Tokens | None = None, *, aligned: bool = False,
    exchanges: Sequence[Exchange] = (), exposed: float = 0.0,
) -> tuple[Warned, ...]:  # fmt: skip
    """All warnings of a result.

    Parameters
    ----------
    asked
        The scenario as written, to find keys without effect, and as simulated.
    phase
        Workers' phases in its runs.
    tokens
        Its throughput in tokens.
    aligned
        Whether ranks entered collectives together, ready or not.
    exchanges
        Of devices that hold one model, or its state, together.
    exposed
        Share of exposed communication in a step.
    """
    scenario = asked.resolved
    return (
        *_on_the_evidence(scenario),
        *_on_the_workload(scenario),
        *_on_the_input(scenario),
        *_on_the_device(scenario),
        *_on_the_mfu(scenario, tokens),
        *_on_the_cluster(scenario),
        *_on_the_run(scenario),
        *_on_the_phases(scenario, phase),
        *_on_the_collective(scenario, exposed, aligned=aligned),
        *scenario.strategy.avoided(scenario),
        *_on_the_gathers(exchanges, exposed),
        *misread(asked.given),
    )


def _on_the_evidence(scenario: Resolved) -> Iterator[Warned]:
    """Aspects without a supporting measurement, and errors of predictions of this kind on the nearest runs."""
    load = scenario.workload
    paths: dict[str, tuple[str, float]] = {"workers": ("strategy.workers", scenario.replicas)}
    if load.calibrated is not None:  # else that is warned about; a device is where the workload was moved to it
        key = "batch_per_replica" if load.global_batch is None else "global_batch"
        paths["batch"] = f"workload.{key}", scenario.batch
    for part in coverage(scenario):
        if part.grade == "uncovered" and part.about in paths:
            path, value = paths[part.about]
            within = validated_workers(scenario) if part.about == "workers" else load.calibrated.batch if load.calibrated else None
            outside = within is not None and not within[0] <= value <= within[1]  # else it is the links that nothing covers
            yield Warned.of("outside-calibration", value, part.text, path, within if outside else None)
    bias = bias_of(scenario)
    if bias is not None:
        off, most = (
            f"{format_share(over - 1.0)} too fast" if over > 1.0 else f"{format_share(1.0 - over)} too slow"
            for over in (bias.predicted_over_measured, bias.one_in_ten)
        )
        where = f" on {bias.device}" if bias.device else f" on more than {bias.more_than} devices" if bias.more_than else ""
        where = f" with {bias.strategy}" if bias.strategy else where
        runs = f"mean of {counted(bias.settings, 'real run')}, one in ten at least {most}"
        text = f"predictions of this kind were {off}{where}; {runs} ({listed(bias.sources)}: docs/fidelity.md)"
        yield Warned.of("biased", scenario.cluster.device or load.device, text)
    if (scenario.ranks > 1 or scenario.servers) and (text := outside_fit(scenario.strategy, load)):
        yield Warned.of("not-by-fit", scenario.strategy.kind, text)


def _outside(path: str, value: float, limits: tuple[float, float], quantity: str) -> Iterator[Warned]:
    if not limits[0] <= value <= limits[1]:
        text = f"{quantity} ({value:g}) lies outside the calibrated range ({limits[0]:g} to {limits[1]:g}): this is an extrapolation"
        yield Warned.of("outside-calibration", value, text, path, limits)


def _overridden(section: str, parts: tuple[str, ...], uncertainty: Uncertainty | None, more: str = "") -> Warned:
    names = ", ".join(parts)
    drawn = uncertainty is not None and any(name.startswith(part) for name in uncertainty.parameters for part in parts)
    without = "" if drawn else "; intervals do not include the uncertainty of that"
    text = f"the scenario sets {names} itself, in place of the {section} file's value{without}{more}"
    return Warned.of("overridden", names, text, section)


def _on_the_workload(scenario: Resolved) -> Iterator[Warned]:
    load = scenario.workload
    if load.uncertainty is None:
        text = "the workload gives no uncertainty of its times, so intervals include only the variation between runs"
        yield Warned.of("no-uncertainty", load.name, text, "workload.uncertainty")
    if scenario.servers and load.apply_s and not load.server(load.parameter_bytes) and scenario.training.optimizer is None:
        yield Warned.of(
            "free-apply", load.name, "neither workload.server nor training.optimizer gives the time to apply a gradient on a parameter "
                                     "server, so it takes no time",
        )  # fmt: skip
    if "disturbed" in load.provenance:
        yield Warned.of("disturbed-calibration", load.name, f"{load.name!r} was calibrated on a busy machine")
    if load.overridden:
        yield _overridden("workload", load.overridden, load.uncertainty, _on_the_spread(load))
    seen, awaited = load.steps_seen, scenario.strategy.pace.awaited(scenario.replicas)
    if seen is not None and awaited > seen and load.jitter.kind != "constant":
        yield Warned.of(
            "tail-not-seen", awaited, f"each step waits for the slowest of {awaited:,} replicas, but only {seen:,} steps were measured, "
                                      "too few to show how slow that is: measure more steps", within=(1, seen),
        )  # fmt: skip
    yield from _on_the_timed_batch(scenario)
    known = load.calibrated
    if load.computed is not None and load.is_computed:
        yield Warned.of(
            "computed", load.name, "the workload was not measured: its times are computed from the model's dimensions for "
                                   f"{load.computed.device} (docs/numbers.md)",
        )  # fmt: skip
        return
    if known is None:
        text = "the workload does not record its measured batches, so extrapolation is not detected"
        yield Warned.of("not-calibrated", load.name, text)
        return
    if load.global_batch is not None and scenario.replicas > 1:
        baseline = "batch of the single-replica baseline of the speed-up"
        yield from _outside("workload.global_batch", load.global_batch, known.batch, baseline)
    if known.tensor_bytes is not None and scenario.servers:
        sizes = [variable.gradient_bytes(scenario.batch) for variable in load.variables]
        yield from _outside("workload.variables", max(sizes), known.tensor_bytes, "bytes of the largest gradient")


def _on_the_spread(load: Workload) -> str:
    """Clause on the measured jitter if the scenario sets the times of steps."""
    parts = {name.partition(".")[0] for name in load.overridden}
    passes = parts & {"forward", "backward"}
    if not passes or "jitter" in parts:
        return ""
    if len(passes) > 1:
        return "; the measured jitter is left out too: give workload.jitter if it applies here"
    cv = math.hypot(load.jitter.spread(), load.run_to_run_cv)
    return f"; steps keep the measured jitter ({format_share(cv)} of the mean): give workload.jitter to change it"


def _on_the_timed_batch(scenario: Resolved) -> Iterator[Warned]:
    """Warn about a batch smaller than the only timed or given one."""
    load, batch = scenario.workload, scenario.batch / scenario.training.micro_batches
    timed = load.timed_batch or load.told_batch
    if timed is None or batch >= timed:
        return
    share = scenario.practice.get("fixed_part", constants()["fixed_part"])
    said, taken = "are given in proportion to the batch", "usually (intervals include this)"
    if load.timed_batch is not None:
        said, taken = "were timed with one batch", "taken to be"
    yield Warned.of(
        "one-batch", batch, f"forward and backward pass {said} of {timed:,.15g} samples, and the batch here is {batch:,.3g}: the fixed "
                            f"part of a step is unknown, {taken} {format_share(share.value)} ({format_share(share.low)} to "
                            f"{format_share(share.high)}) of the step of {timed:,.15g} samples; measure it with `paceline calibrate "
                            f"MODEL.py:FUNCTION --batch {math.ceil(batch)},{timed:.15g}`", within=(timed, timed),
    )  # fmt: skip


def _on_the_input(scenario: Resolved) -> Iterator[Warned]:
    pipeline = scenario.input
    if pipeline is None or pipeline.calibrated is None or (prepared := pipelines(scenario)) is None:
        return
    yield from _outside("input", float(prepared.samples.max()), pipeline.calibrated.batch, "batch of a pipeline")
    yield from _outside("input.parallel_calls", pipeline.parallel_calls, pipeline.calibrated.parallel_calls, "parallel calls")


def _on_the_device(scenario: Resolved) -> Iterator[Warned]:
    load, device = scenario.workload, scenario.cluster.device
    moved, known = load.moved, load.calibrated
    if (recast := load.recast) is not None:
        low, mid, high = recast.factor
        yield Warned.of(
            "other-precision", load.precision, f"the workload was measured in {recast.from_precision}; compute in {load.precision} takes "
                                               f"{format_number(mid)} times as long ({format_number(low)} to {format_number(high)}), "
                                               f"{recast.text}",
            within=(low, high),
        )  # fmt: skip
    if moved is not None and moved.applied:
        low, mid, high = moved.low_mid_high
        taken = "" if device else " (assumed, because the cluster names no device)"
        yield Warned.of(
            "moved-device", moved.to_device, f"the workload was {'computed for' if load.is_computed else 'measured on'} "
                                             f"{moved.from_device!r}; compute on {moved.to_device!r}{taken} takes {format_number(mid)} "
                                             f"times as long ({format_number(low)} to {format_number(high)}), {moved.text}",
            within=(low, high),
        )  # fmt: skip
        if scenario.servers and load.server(load.parameter_bytes):
            yield Warned.of(
                "servers-not-moved", moved.to_device, "the time of a parameter server for a gradient was measured on the host of "
                                                      f"{moved.from_device!r}; this cluster's hosts may differ, and intervals do not "
                                                      "include that",
            )  # fmt: skip
    elif device and not load.device:
        text = f"the workload does not name its measured device, so its times are taken to be for {device!r}"
        yield Warned.of("device-not-known", device, text)
    elif known is not None and known.device and device and not same_device(known.device, device):
        text = f"the workload was measured on {known.device!r} but the cluster has {device!r}; times are used without scaling"
        yield Warned.of("other-device", device, text)
    if (launched := launching(scenario)) is not None:
        usual, most = launched.slower
        low, high = launched.launch_s.low, launched.launch_s.high
        longer = f"launching kernels is not simulated: steps may take {format_number(usual, 2)} to {format_number(most, 2)} times as long"
        if launched.simulated:
            longer = f"the host needs {format_seconds(low)} to {format_seconds(high)} to launch each kernel"
        runs = f"kernels run for only {format_seconds(launched.kernel_s)} each, and a CUDA graph avoids launching each"
        yield Warned.of("host-bound", launched.kernel_s, f"{longer}; {runs}", within=(low, high))


def _on_the_mfu(scenario: Resolved, tokens: Tokens | None) -> Iterator[Warned]:
    device = accelerator_named(scenario.cluster.device or scenario.workload.device)
    highest = device.highest(scenario.workload.precision) if device is not None else None
    mfu = tokens.mfu_with_attention if tokens is not None else None
    if device is None or highest is None or mfu is None or mfu.mean <= highest.mfu:
        return
    yield Warned.of(
        "mfu-above-published", mfu.mean, f"MFU of {format_share(mfu.mean)} is above the highest published for {device.name}, "
                                         f"{format_share(highest.mfu)} ({highest.run}); {highest.source}", within=(0.0, highest.mfu),
    )  # fmt: skip


def _on_the_cluster(scenario: Resolved) -> Iterator[Warned]:
    cluster, load = scenario.cluster, scenario.workload
    if cluster.price is not None and cluster.price.preemption is not None and scenario.job is None:
        yield Warned.of(
            "spot-without-job", cluster.price.called, "spot nodes can be preempted during a run, but without a [job] no time or cost "
                                                      "includes this",
        )  # fmt: skip
    if load.measured_with == "servers" and scenario.measured_in is None:
        if not scenario.servers:
            yield Warned.of(
                "step-with-servers", "servers", "the measured step includes a pull from and a push to parameter servers, which this "
                                                "strategy does not have; it is counted as compute here, so predictions are too slow",
            )  # fmt: skip
        else:
            yield from _too_short_for_its_exchange(scenario)
    if scenario.replicas == 1 and not scenario.servers:
        return
    if cluster.overridden:
        yield _overridden("cluster", cluster.overridden, cluster.uncertainty)
    if cluster.basis == "assumed":
        yield Warned.of("assumed-network", cluster.name, f"the network {cluster.name!r} is assumed, not measured")
    elif cluster.uncertainty is None and not {*felt_by([scenario])} - {"fixed_part"}:
        text = "the cluster gives no uncertainty of its figures, so intervals do not include it"
        yield Warned.of("no-uncertainty", cluster.name, text, "cluster.uncertainty")
    yield from _taken_as_given(scenario)
    yield from _without_effect(scenario)
    known = cluster.calibrated
    if known is not None and known.message_bytes is not None:
        sizes = scenario.strategy.message_bytes(scenario)
        for size in sorted({min(sizes), max(sizes)} if sizes else ()):
            yield from _outside("cluster.calibrated.message_bytes", size, known.message_bytes, "bytes of a message")
    if known is not None and known.bandwidth_bytes_per_s is not None:
        path = "cluster.inter_node.bandwidth_bytes_per_s"
        yield from _outside(path, scenario.value_at(path), known.bandwidth_bytes_per_s, "bandwidth between nodes, bytes/s")


def _too_short_for_its_exchange(scenario: Resolved) -> Iterator[Warned]:
    """Warn about a measured step with no time left for compute."""
    achieved = with_nominal_defaults(scenario)
    step_s = achieved.workload.compute_s(scenario.batch)
    exchange_s = achieved.lone_step_s - step_s
    if exchange_s > 0.9 * step_s:
        yield Warned.of(
            "step-with-servers", "servers", f"a pull and a push take one worker about {format_seconds(exchange_s)} on this cluster, "
                                            f"which leaves almost nothing of a measured step of {format_seconds(step_s)} for compute: "
                                            "the prediction for one worker may be slower than its measurement",
        )  # fmt: skip


def _taken_as_given(scenario: Resolved) -> Iterator[Warned]:
    """Warn about an unmeasured link between nodes whose bandwidth may be the port's rate."""
    cluster = scenario.cluster
    link = cluster.inter_node
    if scenario.nodes_needed == 1 or link.sort != "given" or cluster.shared_cores is not None or cluster.fit is not None:
        return
    if cluster.basis == "measured" and "inter_node" not in cluster.overridden:
        return
    yield Warned.of(
        "no-sort", link.bandwidth_bytes_per_s, f"cluster.inter_node has no sort, so {format_rate(link.bandwidth_bytes_per_s)} is used as "
                                               'the achieved rate; if it is the rate of the port, give sort = "ethernet" (TCP achieves '
                                               f'about {format_share(constants()["ethernet_share"].value)} of it) or "rdma"',
    )  # fmt: skip


def _without_effect(scenario: Resolved) -> Iterator[Warned]:
    """Warn about keys of the cluster without effect on this scenario."""
    cluster, transport, reduction = scenario.cluster, scenario.cluster.transport, scenario.strategy.reduction
    at_once = reduction is not None and scenario.run.detail != "messages" and scenario.worker_nodes > 1
    if at_once and transport.discipline != "fair":
        discipline = f"discipline = {transport.discipline!r}"
        yield Warned.of(
            "transport-not-felt", discipline, f"this all-reduce is simulated without single messages, so {discipline} of "
                                              'cluster.transport has no effect on it; run.detail = "messages" simulates them',
        )  # fmt: skip
    if cluster.overlap_slowdown and scenario.strategy.sending(scenario).apart:
        text = "nothing is sent while this strategy computes (run.grouping, sync_every), so cluster.overlap_slowdown has no effect"
        yield Warned.of("no-overlap", cluster.overlap_slowdown, text)
    background = cluster.background
    if background is not None and background.on != "intra-node" and scenario.nodes_needed == 1:
        text = f"a single node does not use {background.on} links, so cluster.background has no effect"
        yield Warned.of("neighbours-not-felt", background.on, text)
    first = 0
    for kind in cluster.node_classes:
        if first >= scenario.nodes_needed:
            yield Warned.of(
                "class-without-nodes", kind.name, f"no node is left for the class {kind.name!r}: the classes before it fill the "
                                                  f"{scenario.nodes_needed} nodes of the strategy",
            )  # fmt: skip
        first += kind.nodes


def _on_the_run(scenario: Resolved) -> Iterator[Warned]:
    run, pace, start = scenario.run, scenario.strategy.pace, start_of(scenario)
    if run.replications < FEWEST_REPLICATIONS:
        text = f"with fewer than {FEWEST_REPLICATIONS} replications the interval assumes a normal distribution"
        yield Warned.of("few-replications", run.replications, text)
    if run.job_steps is not None and run.steps != type(run)().steps and run.steps * scenario.replicas != run.job_steps:
        yield Warned.of(
            "steps-not-used", run.steps, f"run.job_steps ({run.job_steps:,}) sets the length of the job, so run.steps ({run.steps:,}) "
                                         "has no effect: leave one of them out",
        )  # fmt: skip
    if run.start_spread_s and run.start_spread_s > run.warmup * scenario.lone_step_s:
        text = "workers may still start after the warm-up, so part of the measurement has fewer workers: raise warmup_steps"
        yield Warned.of("start-in-window", run.start_spread_s, text)
    varies = scenario.workload.jitter.kind != "constant" or scenario.workload.run_to_run_cv or scenario.strategy.in_random_order(scenario)
    if pace.asynchronous and pace.bound is None and scenario.replicas > 1 and start == "together" and not varies:
        yield Warned.of(
            "phase-locked", start, "without jitter, asynchronous workers that start together stay in step forever, and real ones do not: "
                                   "give a jitter or another start",
        )  # fmt: skip


_LATE = 0.25
"""If phases take this share of a run to mix, they affect the rest of it."""


def _on_the_phases(scenario: Resolved, phase: Phase | None) -> Iterator[Warned]:
    if phase is None:
        return
    compare = "the start may affect the result, so compare other values of run.start, or simulate more steps"
    if phase.mixed_share < 0.5:
        yield Warned.of(
            "phases-not-mixed", start_of(scenario), f"in {format_share(1 - phase.mixed_share)} of the runs, workers still kept the "
                                                    f"rhythm of their start at the end (order of their phases {phase.order_at_end:.2f}; "
                                                    f"random phases are mostly below {phase.order_of_random_phases:.2f}): {compare}",
        )  # fmt: skip
    elif phase.mixed_after_s is not None and phase.mixed_after_s > _LATE * phase.run_s:
        yield Warned.of(
            "phases-slow-to-mix", start_of(scenario), f"workers kept the rhythm of their start for {format_seconds(phase.mixed_after_s)} "
            f"of a run of {format_seconds(phase.run_s)}: {compare}",
        )  # fmt: skip


_EXPOSED = 0.1
"""Share of exposed communication above which means to hide it are suggested."""


def _on_the_collective(scenario: Resolved, exposed: float, *, aligned: bool) -> Iterator[Warned]:
    """Warn about an all-reduce that all ranks enter together, and about one bucket after the backward pass that could hide part of it."""
    strategy, load, replicas = scenario.strategy, scenario.workload, scenario.replicas
    reduction = strategy.reduction
    if reduction is None:
        return
    if aligned:
        yield Warned.of(
            "aligned-collective", reduction.algorithm, "this all-reduce is simulated as if all ranks began when the slowest is ready, "
                                                       'usually a few percent too late; run.detail = "messages" simulates each rank '
                                                       "separately",
        )  # fmt: skip
    if exposed < _EXPOSED or reduction.in_cycles or strategy.pace.every > 1 or replicas == 1:
        return
    if len({variable.ready for variable in load.variables}) == 1:
        return  # nothing is ready before the backward pass ends
    fused = reduction.buckets(load, scenario.batch, replicas)
    if len({bucket.ready for bucket in fused}) > 1:
        return
    size, total = reduction.bucket_size_bytes, math.fsum(bucket.size_bytes for bucket in fused)
    why = "because strategy.bucket_size is left out, TensorFlow's default (bytes_per_pack = 0)"
    if size is not None:
        why = f"because they fit into one bucket ({format_bytes(size)})"
    yield Warned.of(
        "one-bucket", total if size is None else size, f"all gradients ({format_bytes(total)}) are reduced together after the backward "
                                                       f"pass, {why}: exposed communication takes {format_share(exposed)} of a step; "
                                                       "with a smaller strategy.bucket_size, part of it overlaps with that pass",
    )  # fmt: skip


def _on_the_gathers(exchanges: Sequence[Exchange], exposed: float) -> Iterator[Warned]:
    """Warn about parameters that arrive later than passes need them."""
    longest = max(exchanges, key=lambda exchange: exchange.seconds, default=None)
    if longest is None or exposed < _EXPOSED or (longest.among, longest.does) != ("shards", "all-gather"):
        return
    yield Warned.of(
        "gathers-not-hidden", longest.seconds, f"gathering parameters takes {format_seconds(longest.seconds)} of a step, longer than the "
                                               f"passes that could hide it: exposed communication takes {format_share(exposed)} of a step",
    )  # fmt: skip
