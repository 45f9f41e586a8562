"""Fills in what a scenario leaves open before it is simulated: the device of its workload, when its workers begin, how they pull.

A scenario is what somebody wrote, and its identity (:attr:`~simulator.scenario.Scenario.hash`) is that of what was written. The rest is
decided here, in parts that can be reported to a reader: a workload that was measured on another device than the cluster has is moved to it,
and one whose times are computed is computed for it (:mod:`simulator.resolve.device_transfer`); its step is made as ``[training]`` says, in
parts or in another precision; what is left out is taken as TensorFlow was measured to do it, where neither its own default nor the strategy
(``filled_in``, ``left_open``) says it; and links with only a nominal rate get uncertain achieved rates
(:mod:`simulator.resolve.measured_defaults`), drawn for each replication. A strategy that cuts nothing is replaced by the simpler one that
does the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from simulator.base.catalog import entries
from simulator.base.errors import ScenarioError
from simulator.base.files import read_toml
from simulator.base.spec import Itself
from simulator.base.text import format_number
from simulator.base.validation_errors import validated
from simulator.resolve.device_transfer import moved_to, precision_gain, scaled
from simulator.resolve.measured_defaults import assumed_defaults
from simulator.resolve.published_throughputs import Range, plain
from simulator.scenario import Resolved, Scenario
from simulator.spec.accelerator import Accelerator, accelerator_named
from simulator.spec.computed import CONSTANTS, parameter_bytes_of
from simulator.spec.constants import Known
from simulator.spec.figures import Assumed
from simulator.spec.job import Overheads
from simulator.spec.layers import Layer
from simulator.spec.training import ASSUMED_OPTIMIZER, Optimizer, Passes, Precision, Recast, Training
from simulator.spec.uncertainty import with_times
from simulator.spec.workload import BY_DIMENSIONS, DeviceTransfer, Variable, Workload
from simulator.strategies.catalogue import ALONE


def _as_trained(scenario: Scenario) -> Scenario:
    """The scenario with its workload as the training computes it; itself where nothing is asked for, or all is done.

    Everything that asks a workload for its seconds sees the parts that its batch is cut into: estimates, bounds, engines and the replica
    that speed-up is counted against. A strategy that splits batches itself gets the times of one pass unchanged.
    """
    training, load = scenario.training, scenario.workload
    if training.precision is not None and training.precision != load.precision:
        device = scenario.cluster.device or load.device
        load = _in_precision(Itself(load), training.precision, training.precision_factor, training.precision_source, device)
    passes = None
    if not scenario.strategy.cuts_batches and (training.micro_batches > 1 or training.recompute != "none"):
        passes = Passes(micro_batches=training.micro_batches, recomputed=recomputed_share(training, load.layers))
    if passes != load.passes:
        load = load.replaced({"passes": passes})
    return scenario if load is scenario.workload else scenario.replaced({"workload": load})


def recomputed_share(training: Training, layers: tuple[Layer, ...]) -> float:
    """Share of the forward pass that is computed once more in the backward pass.

    All of it where only what each layer gets is kept (Chen et al., "Training deep nets with
    sublinear memory cost", arXiv:1604.06174); or that of the layers' cheap parts, weighted
    with their work (Korthikanti et al., "Reducing activation recomputation in large
    transformer models", MLSys 2023).
    """
    if training.recompute == "selective":
        work = math.fsum(layer.forward for layer in layers)
        return math.fsum(layer.selective_work * layer.forward for layer in layers) / work if work else 0.0
    return 1.0 if training.recompute == "full" else 0.0


def _assumed_in_training(scenario: Scenario) -> Iterator[Assumed]:
    """Yield what was taken for what ``[training]`` of a resolved scenario leaves out."""
    training, recast = scenario.training, scenario.workload.recast
    if recast is not None and training.precision_factor is None:
        low, mid, high = (format_number(each) for each in recast.factor)
        yield Assumed(path="training.precision_factor", value=f"{mid} ({low} to {high})", reason=recast.text)
    if training.skipped and training.skipped_share is None:
        reason = "TensorFlow's loss scale doubles after 2,000 steps without overflow and then overflows once at the limit of the model"
        yield Assumed(path="training.skipped_share", value=format_number(training.skipped), reason=reason)


@lru_cache(maxsize=256)
def _in_precision(this: Itself[Workload], precision: Precision, given: tuple[float, ...] | None, source: str, device: str) -> Workload:
    """A workload's times in another precision, by the factor that is given or by published pairs."""
    load = this.spec
    sources: tuple[str, ...] = (source,)
    if given is not None:
        low, high = given[0], given[-1]
        factor = Range(low, given[1] if len(given) == 3 else (low * high) ** 0.5, high)
        text = f"by the scenario's factor ({source})"
    else:
        factor, text, sources = _published(load, precision, device)
    recast = Recast(from_precision=load.precision, factor=tuple(factor), text=text, sources=sources)
    shorter = parameter_bytes_of(precision) / parameter_bytes_of(load.precision)
    if shorter != 1.0:
        if given is None:  # memory limits the update, which so takes so many times as long
            load = with_times(load, {"apply_s": shorter})
        load = load.replaced({"variables": tuple(_with_bytes(variable, shorter) for variable in load.variables)})
    return scaled(load, factor, b"precision").replaced({"precision": precision, "recast": recast})


def _with_bytes(variable: Variable, factor: float) -> Variable:
    sparse = variable.sparse_bytes_per_sample
    return variable.replaced({"size_bytes": variable.size_bytes * factor, "sparse_bytes_per_sample": sparse and sparse * factor})


def _published(load: Workload, precision: Precision, device: str) -> tuple[Range, str, tuple[str, ...]]:
    """The factor of time that published pairs of float32 and mixed precision say; none for what multiplies in the same format.

    Raises
    ------
    ScenarioError
        There are too few, or none of these two precisions.
    """
    if {precision, load.precision} == {"bfloat16", "mixed_bfloat16"}:
        return Range(1.0, 1.0, 1.0), "because both multiply in bfloat16; the update moves the bytes of its values", ()
    mixed = precision if load.precision == "float32" else load.precision
    problem = (
        f"fewer than three models are published in both precisions on {device!r}"
        if device
        else "neither cluster nor workload names a device"
    )
    if "float32" not in (precision, load.precision):
        problem = "published pairs have float32 on one side"
    elif mixed != "mixed_float16" and not _is_as_fast_in_both(device):
        problem = f"published pairs use float16, and models/devices does not show that {device!r} is equally fast in bfloat16"
    elif (gain := precision_gain(device, load.model or None) if device else None) is not None:
        low, mid, high, sources = gain
        factor = Range(1 / high, 1 / mid, 1 / low) if load.precision == "float32" else Range(low, mid, high)
        count = f"{len(sources)} sources" if len(sources) > 1 else "one source"
        text = f"by published throughputs in float32 and mixed float16 on {device!r} ({count}, models/published/speeds.csv)"
        return factor, text, sources
    raise ScenarioError(
        f"training.precision: the workload {load.name!r} was measured in {load.precision}, and its time in {precision} is unknown "
        f'({problem}): measure it with "paceline calibrate --precision", or give time in {precision} / time in {load.precision}: '
        'training.precision_factor = [0.4, 0.6] and training.precision_source = "..."'
    )


def _is_as_fast_in_both(device: str) -> bool:
    """Tell whether a device's peak is the same in both short formats."""
    known = accelerator_named(device)
    return known is not None and known.peak("mixed_float16") is not None and known.peak("mixed_float16") == known.peak("mixed_bfloat16")


Start = Literal["together", "staggered", "random-phase"]


def start_of(scenario: Scenario) -> Start:
    """When workers begin: as given, or as it is with their way of training."""
    return scenario.run.start or scenario.strategy.pace.start


def optimizer_of(scenario: Scenario) -> Optimizer | None:
    """Whose slots are counted: as given, or one where memory is computed from layers; else none is known."""
    return scenario.training.optimizer or (ASSUMED_OPTIMIZER if scenario.workload.layers else None)


def device_of(scenario: Scenario) -> Accelerator | None:
    """The device that the cluster names, with its memory; none where it names none that is known, or one whose memory is not."""
    device = accelerator_named(scenario.cluster.device)
    return device if device is not None and device.memory_bytes is not None else None


def _assumptions(scenario: Scenario) -> Iterator[Assumed]:
    """Yield what was taken for what the scenario, as it was written, leaves out."""
    for left in scenario.strategy.left_open(scenario):
        yield Assumed(path=left.path, value=left.value, reason=left.reason)
    pace = scenario.strategy.pace
    if scenario.run.start is None and pace.asynchronous and scenario.replicas > 1:
        yield Assumed(path="run.start", value=pace.start, reason=pace.start_reason)
    if scenario.training.optimizer is None and scenario.workload.layers and device_of(scenario) is not None:
        reason = "almost all large models are trained with it; its slots affect only device memory"
        yield Assumed(path="training.optimizer", value=ASSUMED_OPTIMIZER, reason=reason)
    yield from _of_the_job(scenario)


def _of_the_job(scenario: Scenario) -> Iterator[Assumed]:
    """Yield what a job leaves out that nobody measured either."""
    job, known = scenario.job, scenario.workload.overheads or Overheads()
    if job is None:
        return
    measure = 'its time is unknown: measure it with "paceline calibrate", or give it'
    if job.startup is None and known.startup is None:
        yield Assumed(path="job.startup", value="0 s", reason=measure)
    if job.tracing is None and known.tracing is None:
        yield Assumed(path="job.tracing", value="0 s", reason=measure)
    checkpoint = job.checkpoint
    if checkpoint is not None and checkpoint.size_bytes is None and known.checkpoint_bytes is None:
        optimizer = optimizer_of(scenario) or ASSUMED_OPTIMIZER
        yield Assumed(
            path="job.checkpoint.size", value="variables and slots", reason=f"a checkpoint holds both; slots are those of {optimizer}"
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """The scenario as written.

    Attributes
    ----------
    given
        The scenario as it was written.
    resolved
        As it is simulated: its workload on the cluster's device and as it is trained there, its defaults filled in.
    """

    given: Scenario
    resolved: Resolved

    @classmethod
    def of(cls, scenario: Scenario) -> Asked:
        """A scenario, resolved: raises what :func:`resolve` does."""
        return cls(scenario, resolve(scenario))

    @property
    def moved(self) -> DeviceTransfer | None:
        """To which device the workload was moved and by which rule; none where it was measured there, or is taken as it is."""
        moved = self.resolved.workload.moved
        return moved if moved is not None and moved.applied else None

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """Return what was taken for what the scenario leaves out, where another value would give another result."""
        return (*_assumptions(self.given), *_assumed_in_training(self.resolved), *assumed_defaults(self.resolved))


def resolve(scenario: Scenario) -> Resolved:
    """Decide what a scenario leaves open.

    A resolved scenario stays unchanged, so resolving twice is harmless. It takes microseconds but for the first time that a workload is
    moved.

    Raises
    ------
    ScenarioError
        The workload was measured on another device than the cluster has, or in another precision than it is trained in, and no rule
        leads there; or its times are computed, and cannot be for that device.

    Examples
    --------
    >>> from simulator.catalogue.loading import load_scenario
    >>> given = load_scenario("async-ps", [("run.start", "together")])
    >>> resolved = resolve(given)
    >>> resolved.strategy.pull_order, [each.path for each in Asked(given, resolved).assumed]
    ('random', ['strategy.pull_order', 'cluster, links of sort ethernet', 'cluster.transport', 'cluster.transport'])
    >>> resolved == resolve(resolved)
    True
    """
    load, device = scenario.workload, scenario.cluster.device
    own = tuple((name, scenario.practice[name]) for name in CONSTANTS if name in scenario.practice)
    eager = scenario.eager
    if (device and (load.device or load.moved is not None)) or ((own or eager is not None) and load.is_computed):
        there = _moved(Itself(load), device, own, eager)
        scenario = scenario if there is load else scenario.replaced({"workload": there})
    if (simpler := scenario.strategy.simpler) is not None:
        scenario = scenario.replaced({"strategy": simpler})
    if scenario.job is not None and scenario.job.faults != scenario.faults:  # nodes at a spot price are taken away
        scenario = scenario.replaced({"job.faults": scenario.faults})
    scenario = _as_trained(scenario)
    changes: dict[str, Any] = {"run.start": start_of(scenario)} if scenario.run.start is None else {}
    if (filled := scenario.strategy.filled_in(scenario)) is not scenario.strategy:
        try:
            filled.check_layout(scenario.cluster)
            filled.check(scenario)
        except ValueError as error:
            raise ScenarioError(f"strategy.kind {filled.kind!r}, as simulated: {error}") from None
        changes["strategy"] = filled
    return Resolved(scenario.replaced(changes) if changes else scenario)


def alone_scenario(scenario: Resolved) -> Resolved:
    """The single-replica baseline of the speed-up: the same workload on one replica.

    Weak scaling keeps the batch of a replica, strong scaling the global batch, so that the one replica does the work of all. Its device has
    the measured speed, and its process the mean speed of all: of the variation between processes it keeps only the part common to one
    machine, because the luck of a single process does not represent many.
    """
    load, run = scenario.workload, scenario.run
    changes: dict[str, Any] = {
        "strategy": ALONE, "cluster.node_speed": (), "cluster.node_classes": (), "cluster.slow_nodes": None, "cluster.slowdown": None,
        "cluster.replicas_per_device": 1, "cluster.background": None,
        # without cores that all share it makes no difference to one replica whether its device is a host's
        "cluster.device_is_host": scenario.cluster.device_is_host and scenario.cluster.shared_cores is not None,
        "run.job_steps": None, "run.start": "together", "run.start_spread_s": None,
    }  # fmt: skip
    if run.job_steps is not None:
        changes |= {"run.steps": max(2, -(-run.job_steps // scenario.replicas)), "run.warmup_steps": run.warmup}
    if scenario.processes > 1 and load.run_to_run_cv:
        shared = load.run_to_run_shared or 0.0
        cv = math.sqrt(math.expm1(shared * math.log1p(load.run_to_run_cv**2)))
        changes |= {"workload.run_to_run_cv": cv, "workload.run_to_run_shared": 1.0}
    # resolved anew: a strategy that cuts batches by itself leaves the passes of one whole batch open
    return resolve(scenario.replaced(changes))


@lru_cache(maxsize=256)
def _moved(this: Itself[Workload], device: str, own: tuple[tuple[str, Known], ...], eager: bool | None) -> Workload:
    return moved_to(this.spec, device, _of_the_same_model(this.spec), own=dict(own), eager=eager)


def _of_the_same_model(load: Workload) -> Iterator[Workload]:
    """Workloads of the catalogue of the same model, but those that nobody measured."""
    for path in entries("workloads").values():
        table = read_toml(path)
        if load.model and plain(str(table.get("model", ""))) == plain(load.model) and not BY_DIMENSIONS.keys() & table.keys():
            yield validated(Workload, table, str(path))
