"""The warnings that a result carries: what a reader must know before trusting it, such as assumptions and the edge of what was measured.

Each code has its title in ``WARNINGS`` of ``simulator.spec.figures``, and is explained in docs/reference/warnings.md. Some warnings are
made elsewhere: misread.py, a strategy's ``avoided``, ``warned_of`` of ``simulator.job.outcome``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from simulator.base.text import counted, format_bytes, format_number, format_rate, format_seconds, format_share, listed
from simulator.resolve.measured_defaults import felt_by, with_nominal_defaults
from simulator.resolve.published_throughputs import same_device
from simulator.resolve.resolve import Asked, start_of
from simulator.results.inadequacy import bias_of, coverage, warned_of_host
from simulator.results.intervals import FEWEST_REPLICATIONS
from simulator.results.misread import misread
from simulator.scenario import Resolved
from simulator.spec.constants import constants
from simulator.spec.figures import Exchange, Phase, Warned
from simulator.spec.uncertainty import Uncertainty
from simulator.spec.workload import Workload
from simulator.strategies.pipelines import pipelines
from simulator.strategies.strategy import outside_fit


def warnings_of(
    asked: Asked, phase: Phase | None = None, *, aligned: bool = False, exchanges: Sequence[Exchange] = (), exposed: float = 0.0
) -> tuple[Warned, ...]:
    """All warnings that a result of a scenario carries.

    Parameters
    ----------
    asked
        As it was written, which is read for keys that change nothing, and as it is simulated.
    phase
        What its runs showed of the workers' phases.
    aligned
        Whether ranks entered collectives together, ready or not.
    exchanges
        Of devices that hold one model, or its state, together.
    exposed
        Share of a step that was communication which nothing hid.
    """
    scenario = asked.resolved
    return (
        *_uncovered(scenario),
        *_on_the_bias(scenario),
        *_on_the_software(scenario),
        *_on_the_workload(scenario),
        *_on_the_input(scenario),
        *_on_the_device(scenario),
        *warned_of_host(scenario),
        *_on_the_cluster(scenario),
        *_on_the_run(scenario),
        *_on_the_phases(scenario, phase),
        *_on_the_collective(scenario, aligned),
        *_on_the_buckets(scenario, exposed),
        *scenario.strategy.avoided(scenario),
        *_on_the_gathers(exchanges, exposed),
        *misread(asked.given),
    )


def _uncovered(scenario: Resolved) -> Iterator[Warned]:
    """What nothing that was measured speaks for; a workload without a calibrated range is warned about for that."""
    paths: dict[str, tuple[str, float]] = {"batch": ("workload.batch", scenario.batch), "workers": ("strategy.workers", scenario.replicas)}
    for part in coverage(scenario):
        # a device is warned about where the workload was moved to it
        if part.grade == "uncovered" and part.about in paths and (part.about != "batch" or scenario.workload.calibrated is not None):
            path, value = paths[part.about]
            yield Warned(code="outside-calibration", path=path, value=value, text=part.text)


def _on_the_bias(scenario: Resolved) -> Iterator[Warned]:
    """What predictions of this kind came out at on the nearest runs, where that was too fast or too slow throughout."""
    bias = bias_of(scenario)
    if bias is not None:
        over = bias.predicted_over_measured
        off = f"{format_share(over - 1.0)} too fast" if over > 1.0 else f"{format_share(1.0 - over)} too slow"
        runs = counted(bias.settings, "real run") + (f" on {bias.device}" if bias.device else "")
        text = f"predictions of this kind were {off} in the mean over {runs} ({listed(bias.sources)}: docs/fidelity.md)"
        yield Warned(code="biased", path="cluster.device", value=scenario.cluster.device or scenario.workload.device, text=text)


def _on_the_software(scenario: Resolved) -> Iterator[Warned]:
    if (scenario.ranks > 1 or scenario.servers) and (text := outside_fit(scenario.strategy, scenario.workload)):
        yield Warned(code="not-by-fit", path="strategy.kind", value=scenario.strategy.kind, text=text)


_LATE = 0.25
"""Phases that take this share of a run to mix colour the rest of it."""


def _on_the_phases(scenario: Resolved, phase: Phase | None) -> Iterator[Warned]:
    if phase is None:
        return
    compare = "how they start may decide the result, so compare other values of run.start, or simulate more steps"
    if phase.mixed_share < 0.5:
        yield Warned(
            code="phases-not-mixed", path="run.start", value=start_of(scenario),
            text=f"in {format_share(1 - phase.mixed_share)} of the runs workers still kept the rhythm of their start at the end (order of "
            f"their phases {phase.order_at_end:.2f}; at random mostly below {phase.order_of_random_phases:.2f}): {compare}",
        )  # fmt: skip
    elif phase.mixed_after_s is not None and phase.mixed_after_s > _LATE * phase.run_s:
        yield Warned(
            code="phases-slow-to-mix", path="run.start", value=start_of(scenario),
            text=f"workers kept the rhythm of their start for {format_seconds(phase.mixed_after_s)} of a run of "
            f"{format_seconds(phase.run_s)}: {compare}",
        )  # fmt: skip


def _on_the_collective(scenario: Resolved, aligned: bool) -> Iterator[Warned]:
    reduction = scenario.strategy.reduction
    if aligned and reduction is not None:
        yield Warned(
            code="aligned-collective", path="strategy.algorithm", value=reduction.algorithm,
            text="this all-reduce is simulated as if all ranks began it when the slowest is ready, which is mostly some percent late; "
            'run.detail = "messages" simulates each rank by itself',
        )  # fmt: skip


_EXPOSED = 0.1
"""Communication of this share of a step is worth a warning where there are means to hide it."""


def _on_the_buckets(scenario: Resolved, exposed: float) -> Iterator[Warned]:
    """All gradients in one bucket, which is reduced after the backward pass that could hide a part of it."""
    strategy, load, replicas = scenario.strategy, scenario.workload, scenario.replicas
    reduction = strategy.reduction
    if exposed < _EXPOSED or reduction is None or reduction.in_cycles or strategy.pace.every > 1 or replicas == 1:
        return
    if len({variable.ready for variable in load.variables}) == 1:
        return  # nothing is ready before the backward pass ends
    fused = reduction.buckets(load, scenario.batch, replicas)
    if len({bucket.ready for bucket in fused}) > 1:
        return
    size, total = reduction.bucket_size_bytes, math.fsum(bucket.size_bytes for bucket in fused)
    why = "since strategy.bucket_size is left out, as TensorFlow does by default (bytes_per_pack = 0)"
    if size is not None:
        why = f"since they fill one bucket of {format_bytes(size)} alone"
    yield Warned(
        code="one-bucket", path="strategy.bucket_size_bytes", value=total if size is None else size,
        text=f"all gradients ({format_bytes(total)}) are reduced as one, after the backward pass, {why}: communication that nothing hides "
        f"takes {format_share(exposed)} of a step; with a smaller strategy.bucket_size a part of it overlaps with that pass",
    )  # fmt: skip


def _on_the_gathers(exchanges: Sequence[Exchange], exposed: float) -> Iterator[Warned]:
    """Parameters that come later than passes need them."""
    longest = max(exchanges, key=lambda exchange: exchange.seconds, default=None)
    if longest is None or exposed < _EXPOSED or (longest.among, longest.does) != ("shards", "all-gather"):
        return
    yield Warned(
        code="gathers-not-hidden", path="strategy.shard", value=longest.seconds,
        text=f"gathering parameters takes {format_seconds(longest.seconds)} of a step, longer than the passes that could hide it: "
        f"communication that nothing hides takes {format_share(exposed)} of a step",
    )  # fmt: skip


def _outside(path: str, value: float, limits: tuple[float, float], what: str) -> Iterator[Warned]:
    if not limits[0] <= value <= limits[1]:
        text = f"{what} ({value:g}) lies outside what was calibrated ({limits[0]:g} to {limits[1]:g}): this is an extrapolation"
        yield Warned(code="outside-calibration", path=path, value=value, range=limits, text=text)


def _overridden(section: str, parts: tuple[str, ...], uncertainty: Uncertainty | None) -> Warned:
    names = ", ".join(parts)
    drawn = uncertainty is not None and any(name.startswith(part) for name in uncertainty.parameters for part in parts)
    without = "" if drawn else "; intervals do not hold how uncertain that is"
    text = f"the scenario sets {names} itself, in place of what the {section}'s file gives{without}"
    return Warned(code="overridden", path=section, value=names, text=text)


def _on_the_input(scenario: Resolved) -> Iterator[Warned]:
    pipeline = scenario.input
    if pipeline is None or pipeline.calibrated is None or (prepared := pipelines(scenario)) is None:
        return
    yield from _outside("input", float(prepared.samples.max()), pipeline.calibrated.batch, "batch of a pipeline")
    yield from _outside("input.parallel_calls", pipeline.parallel_calls, pipeline.calibrated.parallel_calls, "parallel calls")


def _on_the_workload(scenario: Resolved) -> Iterator[Warned]:
    load = scenario.workload
    if load.uncertainty is None:
        yield Warned(
            code="no-uncertainty", path="workload.uncertainty", value=load.name,
            text="the workload does not say how uncertain its times are, so intervals hold only the variation between runs",
        )  # fmt: skip
    if scenario.servers and load.apply_s and not load.server(load.parameter_bytes) and scenario.training.optimizer is None:
        yield Warned(
            code="free-apply", path="workload.server", value=load.name,
            text="neither workload.server nor training.optimizer says how long a parameter server takes to apply a gradient, so that "
            "takes no time",
        )  # fmt: skip
    if disturbed := load.provenance.get("disturbed"):
        text = f"the workload was calibrated on a disturbed machine: {disturbed}"
        yield Warned(code="disturbed-calibration", path="workload.provenance", value=load.name, text=text)
    if load.overridden:
        told = _overridden("workload", load.overridden, load.uncertainty)
        yield told.replaced({"text": f"{told.text}{_on_the_spread(load)}"})
    yield from _on_the_tail(scenario)
    yield from _on_the_timed_batch(scenario)
    known = load.calibrated
    if load.computed is not None and load.is_computed:
        text = (
            f"nobody measured the workload: its times are computed from the model's dimensions for {load.computed.device} "
            "(docs/computed-workloads.md)"
        )
        yield Warned(code="computed", path="workload", value=load.name, text=text)
        return
    if known is None:
        yield Warned(
            code="not-calibrated",
            path="workload.calibrated",
            value=load.name,
            text="the workload does not say which batches it was measured with, so nobody is warned of an extrapolation",
        )
        return
    if load.global_batch is not None and scenario.replicas > 1:
        yield from _outside(
            "workload.global_batch", load.global_batch, known.batch, "batch of the single replica that speed-up is counted against"
        )
    if known.tensor_bytes is not None and scenario.servers:
        sizes = [variable.gradient_bytes(scenario.batch) for variable in load.variables]
        yield from _outside("workload.variables", max(sizes), known.tensor_bytes, "bytes of the largest gradient")


def _on_the_spread(load: Workload) -> str:
    """What becomes of the measured spread of steps whose times the scenario sets."""
    parts = {name.partition(".")[0] for name in load.overridden}
    passes = parts & {"forward", "backward"}
    if not passes or "jitter" in parts:
        return ""
    if len(passes) > 1:
        return "; the spread of steps around the measured times is left out with them: give workload.jitter if it holds here"
    cv = math.hypot(load.jitter.spread(), load.run_to_run_cv)
    return f"; steps keep the spread of the measured times ({format_share(cv)} of the mean): give workload.jitter if another holds here"


def _on_the_timed_batch(scenario: Resolved) -> Iterator[Warned]:
    """Where a smaller batch is computed than the only one that was timed, or told of."""
    load, batch = scenario.workload, scenario.batch / scenario.training.micro_batches
    timed = load.timed_batch or load.told_batch
    if timed is None or batch >= timed:
        return
    share = scenario.practice.get("fixed_part", constants()["fixed_part"])
    said = "were timed with one batch" if load.timed_batch is not None else "are told in proportion to the batch"
    taken = "taken to be" if load.timed_batch is not None else "which intervals allow for, usually"
    yield Warned(
        code="one-batch", path="workload.forward.base_s", value=batch, range=(timed, timed),
        text=f"forward and backward pass {said}, of {timed:,.15g} samples, and take {batch:,.3g} here: "
        f"what of a step does not shrink with its batch is not known, {taken} {format_share(share.value)} "
        f"({format_share(share.low)} to {format_share(share.high)}) of the step of {timed:,.15g} samples; measure it with `paceline "
        f"calibrate MODEL.py:FUNCTION --batch {math.ceil(batch)},{timed:.15g}`",
    )  # fmt: skip


def _on_the_tail(scenario: Resolved) -> Iterator[Warned]:
    """Where every step waits for the slowest of more replicas than there were steps to see a slow one in."""
    seen, awaited = scenario.workload.steps_seen, scenario.strategy.pace.awaited(scenario.replicas)
    if seen is None or awaited <= seen or scenario.workload.jitter.kind == "constant":
        return
    yield Warned(
        code="tail-not-seen", path="workload.jitter", value=awaited, range=(1, seen),
        text=f"each step waits for the slowest of {awaited:,} replicas, but only {seen:,} steps were measured, too few to see how slow "
        "the slowest of so many is; measure more steps",
    )  # fmt: skip


def _on_the_device(scenario: Resolved) -> Iterator[Warned]:
    load, device = scenario.workload, scenario.cluster.device
    moved, known = load.moved, load.calibrated
    if (recast := load.recast) is not None:
        low, mid, high = recast.factor
        yield Warned(
            code="other-precision", path="training.precision", value=load.precision, range=(low, high),
            text=f"the workload was measured in {recast.from_precision}; its compute takes {format_number(mid)} times as long "
            f"({format_number(low)} to {format_number(high)}) in {load.precision}, {recast.text}",
        )  # fmt: skip
    if moved is not None and moved.applied:
        low, mid, high = moved.low_mid_high
        taken = "" if device else " (assumed, since the cluster names no device)"
        yield Warned(
            code="moved-device", path="workload.moved", value=moved.to_device, range=(low, high),
            text=f"the workload was {'computed for' if load.is_computed else 'measured on'} {moved.from_device!r}; "
            f"its compute takes {format_number(mid)} times as long "
            f"({format_number(low)} to {format_number(high)}) on {moved.to_device!r}{taken}, {moved.text}",
        )  # fmt: skip
        if scenario.servers and load.server(load.parameter_bytes):
            yield Warned(
                code="servers-not-moved", path="workload.server", value=moved.to_device,
                text=f"the time that a parameter server takes for a gradient was measured on the host of {moved.from_device!r}: "
                "how long this cluster's hosts take is not known, and no interval holds it",
            )  # fmt: skip
    elif device and not load.device:
        yield Warned(
            code="device-not-known", path="workload.calibrated.device", value=device,
            text=f"the workload does not say on which device it was measured, so its times are taken as those of {device!r}",
        )  # fmt: skip
    elif known is not None and known.device and device and not same_device(known.device, device):
        yield Warned(
            code="other-device", path="cluster.device", value=device,
            text=f"the workload was measured on {known.device!r}, the cluster has {device!r}, and its times are used unchanged",
        )  # fmt: skip


def _on_the_cluster(scenario: Resolved) -> Iterator[Warned]:
    cluster = scenario.cluster
    if cluster.price is not None and cluster.price.preemption is not None and scenario.job is None:
        yield Warned(
            code="spot-without-job", path="cluster.price.preemption", value=cluster.price.called,
            text="nodes at a spot price are taken away in the middle of a run, which only the time of a whole job holds: without a [job] "
            "no time and no cost has it in it",
        )  # fmt: skip
    if scenario.workload.measured_with == "servers" and not scenario.servers and scenario.measured_in is None:
        yield Warned(
            code="step-with-servers", path="workload.measured_with", value="servers",
            text="the measured step held a pull from and a push to parameter servers, which this strategy has not, and all of it is "
            "taken as compute here: predictions come out too slow",
        )  # fmt: skip
    if scenario.workload.measured_with == "servers" and scenario.servers and scenario.measured_in is None:
        yield from _too_short_for_its_exchange(scenario)
    if scenario.replicas == 1 and not scenario.servers:
        return
    if cluster.overridden:
        yield _overridden("cluster", cluster.overridden, cluster.uncertainty)
    if cluster.basis == "assumed":
        yield Warned(
            code="assumed-network",
            path="cluster.basis",
            value=cluster.name,
            text=f"the network {cluster.name!r} is an assumption, not a measurement",
        )
    elif cluster.uncertainty is None and not {*felt_by([scenario])} - {"fixed_part"}:
        yield Warned(
            code="no-uncertainty",
            path="cluster.uncertainty",
            value=cluster.name,
            text="the cluster does not say how uncertain its figures are, so intervals do not hold that",
        )
    yield from _taken_as_given(scenario)
    yield from _without_effect(scenario)
    known = cluster.calibrated
    if known is not None and known.message_bytes is not None:
        sizes = scenario.strategy.message_bytes(scenario)
        for size in sorted({min(sizes), max(sizes)} if sizes else ()):
            yield from _outside("cluster.calibrated.message_bytes", size, known.message_bytes, "bytes of a message")
    if known is not None and known.bandwidth_bytes_per_s is not None:
        rate = cluster.inter_node.bandwidth_bytes_per_s
        yield from _outside(
            "cluster.inter_node.bandwidth_bytes_per_s", rate, known.bandwidth_bytes_per_s, "bandwidth between nodes, bytes/s"
        )


def _too_short_for_its_exchange(scenario: Resolved) -> Iterator[Warned]:
    """A measured step in which no time is left for compute."""
    achieved = with_nominal_defaults(scenario)
    step_s = achieved.workload.compute_s(scenario.batch)
    exchange_s = achieved.lone_step_s - step_s
    if exchange_s > 0.9 * step_s:
        yield Warned(
            code="step-with-servers", path="workload.measured_with", value="servers",
            text=f"a pull and a push take one worker about {format_seconds(exchange_s)} on this cluster, so that hardly any of a measured "
            f"step of {format_seconds(step_s)} is left for compute: one worker may come out slower than it was measured",
        )  # fmt: skip


def _taken_as_given(scenario: Resolved) -> Iterator[Warned]:
    """A link between nodes that nobody measured, whose bandwidth may be that of the port."""
    cluster = scenario.cluster
    link = cluster.inter_node
    if scenario.nodes_needed == 1 or link.sort != "given" or cluster.shared_cores is not None:
        return
    if cluster.fit is not None or (cluster.basis == "measured" and "inter_node" not in cluster.overridden):
        return
    share = constants()["ethernet_share"].value
    yield Warned(
        code="no-sort", path="cluster.inter_node.sort", value=link.bandwidth_bytes_per_s,
        text=f"cluster.inter_node has no sort, so that {format_rate(link.bandwidth_bytes_per_s)} is taken as what transfers get; if it is "
        f'the rate of the port, give sort = "ethernet" (TCP gets about {format_share(share)} of it) or "rdma"',
    )  # fmt: skip


def _without_effect(scenario: Resolved) -> Iterator[Warned]:
    """What the cluster says and this scenario does not feel."""
    cluster, transport, reduction = scenario.cluster, scenario.cluster.transport, scenario.strategy.reduction
    at_once = reduction is not None and scenario.run.detail != "messages" and scenario.worker_nodes > 1
    if at_once and transport.discipline != "fair":
        what = f"discipline = {transport.discipline!r}"
        yield Warned(
            code="transport-not-felt", path="cluster.transport", value=what,
            text=f"this all-reduce is evaluated without its single messages, so {what} of cluster.transport has no effect on it; "
            'run.detail = "messages" simulates them',
        )  # fmt: skip
    if cluster.overlap_slowdown and scenario.strategy.sending(scenario).apart:
        yield Warned(
            code="no-overlap", path="cluster.overlap_slowdown", value=cluster.overlap_slowdown,
            text="nothing is sent while this strategy computes (run.grouping, sync_every), so cluster.overlap_slowdown has no effect",
        )  # fmt: skip
    background = cluster.background
    if background is not None and background.on != "intra-node" and scenario.nodes_needed == 1:
        yield Warned(
            code="neighbours-not-felt", path="cluster.background.on", value=background.on,
            text=f"a single node sends nothing over {background.on} links, so cluster.background has no effect",
        )  # fmt: skip
    first = 0
    for kind in cluster.node_classes:
        if first >= scenario.nodes_needed:
            yield Warned(
                code="class-without-nodes", path="cluster.node_classes", value=kind.name,
                text=f"no node is left for the class {kind.name!r}: the strategy takes {scenario.nodes_needed}, and the classes before it "
                "fill them",
            )  # fmt: skip
        first += kind.nodes


def _on_the_run(scenario: Resolved) -> Iterator[Warned]:
    run, pace = scenario.run, scenario.strategy.pace
    if run.replications < FEWEST_REPLICATIONS:
        yield Warned(
            code="few-replications", path="run.replications", value=run.replications,
            text=f"with fewer than {FEWEST_REPLICATIONS} replications the interval assumes a normal distribution",
        )  # fmt: skip
    if run.job_steps is not None and run.steps != type(run)().steps and run.steps * scenario.replicas != run.job_steps:
        yield Warned(
            code="steps-not-used", path="run.steps", value=run.steps,
            text=f"run.job_steps ({run.job_steps:,}) says how long the job is, so run.steps ({run.steps:,}) has no effect: "
            "leave one of them out",
        )  # fmt: skip
    if run.start_spread_s and run.start_spread_s > run.warmup * scenario.lone_step_s:
        text = "workers may still start after the warm-up has ended, so part of what is measured has fewer workers: raise warmup_steps"
        yield Warned(code="start-in-window", path="run.start_spread_s", value=run.start_spread_s, text=text)
    if (
        pace.asynchronous
        and pace.bound is None
        and scenario.replicas > 1
        and scenario.workload.jitter.kind == "constant"
        and not scenario.workload.run_to_run_cv
        and start_of(scenario) == "together"
        and not scenario.strategy.in_random_order(scenario)
    ):
        yield Warned(
            code="phase-locked", path="run.start", value=start_of(scenario),
            text="without jitter, asynchronous workers that start together stay together for ever; "
            "a real run drifts apart: give a jitter or another start",
        )  # fmt: skip
