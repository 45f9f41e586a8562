"""Fits a workload to profiles (XPlane, Kineto) that the user already has, with intervals and provenance.

The profiles are read in ``calibrate/traces``; costs and distribution of steps are fitted in :mod:`calibrate.fit.step_times`, as those of
measured steps. What profiles do not show goes into the provenance by subject; the command line shows the subjects that
``_LEFT_OPEN`` of ``paceline/cli/commands/calibrate.py`` names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.estimators import FEWEST_FACTORS, drawn, intervals_90, line_of_means
from calibrate.fit.step import in_order_of_readiness, variable_of
from calibrate.fit.step_times import StepTable, fit_steps
from calibrate.fit.writing import made
from calibrate.traces.profiles import Profiled
from calibrate.traces.steps import MeasuredStep, StepsOfProfile, buckets_of
from calibrate.traces.variables import ModelVariable, ModelVariables, gradient_ops, readiness
from simulator.base.errors import CalibrationError, InputError
from simulator.base.text import digits, format_seconds
from simulator.spec.workload import Affine, CalibrationFit, Workload, WorkloadRange

Array = NDArray[np.float64]

BACKWARD_SHARE = 2 / 3
"""Of forward and backward together, where a profile does not name the gradients' operations: each layer's two
products of the backward pass against one of the forward pass (Kaplan et al., arXiv:2001.08361, section 2.1)."""

_ROUNDS = 5


def fit_profiles(profiled: Profiled, model: ModelVariables | None, name: str, command: str = "", precision: str = "float32") -> Workload:
    """Fit a workload to profiles, with the variables of a model, which only PyTorch's tell, and the precision of its numbers.

    From two batch sizes on, forward and backward are affine functions of the batch, as
    those of :func:`calibrate.fit.step.fit_workload`. One batch size cannot tell what a step costs
    whatever the batch from what a sample costs: then all of forward and backward is
    counted as the samples', which ``provenance`` says and which holds at that batch only.

    Raises
    ------
    CalibrationError
        A step takes no time.
    InputError
        The sizes of the variables are missing.
    """
    model, shares = _variables(profiled, model)
    table = _table(profiled)
    rng = np.random.default_rng(0)
    times = fit_steps(table, rng, few_steps=True)
    parameters = {key: digits(value) for key, value in times.parameters.items()}
    # rounded as the file has them, so that a draw and an interval's end that are the same number look the same
    draws = None if times.draws is None else np.vectorize(digits)(times.draws)
    flags = _flags(profiled.by_batch)
    if profiled.count < FEWEST_FACTORS:
        flags["jitter"] = (
            f"{profiled.count} steps are too few for a distribution of their times ({FEWEST_FACTORS} are needed): no jitter is assumed"
        )
    if draws is None:
        flags["intervals"] = "too few steps for intervals; profile 10 or more"
    names = [variable.name for variable in model.variables]
    unseen = [name for name in names if name not in shares]
    if unseen:
        flags["gradients"] = (
            f"{len(unseen)} of {len(names)} variables, such as {unseen[0]}, appear in no operation's name: each counts as ready at the "
            "end of the backward pass"
        )
    if any("embedding" in name.lower() for name in names):
        flags["sparse"] = "gradients of embeddings are counted as dense, because a profile does not show how many rows a sample touches"
    if model.order != "creation":
        order = "alphabetical order" if model.order == "alphabetical" else f"the order of the {model.order}"
        flags["order"] = f"variables are assumed to have been created in {order}, which determines their servers"
    sizes = [variable.bytes for variable in model.variables]
    profiles, device = profiled.profiles, profiled.profiles[0].trace.device_name
    facts = {
        **made(command),
        "runs": str(len(set(table.runs))),
        "profiled": " ".join(filter(None, (seen.trace.started for seen in profiles))),
        "profiles": " ".join(str(seen.trace.path) for seen in profiles),
        "profiles_sha256": " ".join(seen.trace.sha256 for seen in profiles),
        "steps": f"{profiled.count}, marked by {', '.join(dict.fromkeys(seen.trace.marks.name for seen in profiles))!r}",
        "device": device,
        "variables": model.source,
    }
    return Workload(
        name=name,
        description=f"{name}: batches of {_range(table.batches)} on {device}, from a profile",
        backend=profiles[0].trace.backend,
        precision=precision,
        **times.fields,
        input=_input(profiled),
        input_bytes_per_sample=_bytes_per_sample(profiled),
        variables=in_order_of_readiness(
            variable_of(variable.name, variable.shape, variable.bytes, place, shares.get(variable.name, 1.0))
            for place, variable in enumerate(model.variables)
        ),
        calibrated=WorkloadRange(batch=(table.batches[0], table.batches[-1]), tensor_bytes=(min(sizes), max(sizes)), device=device),
        uncertainty=None if draws is None else drawn(list(parameters), draws),
        fit=CalibrationFit(
            **times.quality, intervals_90={} if draws is None else intervals_90(list(parameters), draws, around=list(parameters.values()))
        ),
        provenance={key: value for key, value in facts.items() if value} | flags,
    )


def _variables(profiled: Profiled, model: ModelVariables | None) -> tuple[ModelVariables, dict[str, float]]:
    """The variables, and the share of the backward pass after which the gradient of each is ready, where it was seen.

    Without ``model`` they are those whose shapes the trace has, or else the buckets in which gradients are reduced.

    Raises
    ------
    InputError
        Neither is given nor in the trace.
    """
    traced = next((profile.trace.gradients for profile in profiled.profiles if profile.trace.gradients), ())
    created = sorted(traced, key=lambda gradient: gradient.created)
    if model is not None:
        names = [variable.name for variable in model.variables]
        if created and [own.size_bytes for own in created] == [variable.bytes for variable in model.variables]:
            return model, {name: own.ready for name, own in zip(names, created, strict=True)}
        return model, readiness(names, gradient_ops(step for profile in profiled.profiles for step in profile.steps))
    parts = [(f"variable_{own.created:03d}", own.shape, own.size_bytes, own.ready) for own in created]
    source = f"shapes in {profiled.profiles[0].trace.path}"
    if not parts:
        buckets = sorted((own for own in buckets_of(profiled.profiles[0].steps) if own.size_bytes), key=lambda own: -own.number)
        parts = [(f"bucket_{own.number:03d}", (), own.size_bytes, own.ready) for own in buckets]
        source = f"the {len(parts)} buckets in {profiled.profiles[0].trace.path}: each counts as one variable"
    if not parts:
        hint = ", or record shapes (`record_shapes=True`)" if profiled.profiles[0].trace.by_launch else ""
        raise InputError(f"`profiles`: profiles do not contain the sizes of the variables; add `model`, `checkpoint` or `variables`{hint}")
    variables = tuple(ModelVariable(name=name, shape=shape, size_bytes=size) for name, shape, size, _ in parts)
    return ModelVariables(variables, source, "creation"), {name: ready for name, *_, ready in parts}


def _input(profiled: Profiled) -> Affine:
    """Seconds to prepare a batch while the one before is computed: for each sample, or affine from two batch sizes on."""
    means = {
        batch: float(np.mean([profile.trace.input.prepare_s for profile in profiles])) for batch, profiles in profiled.by_batch.items()
    }
    if not all(means.values()):
        return Affine(base_s=0.0, per_sample_s=0.0)
    if len(means) == 1:
        ((batch, seconds),) = means.items()
        return Affine(base_s=0.0, per_sample_s=digits(seconds / batch))
    return line_of_means(list(means), list(means.values())).affine()


def _bytes_per_sample(profiled: Profiled) -> float | None:
    sizes = [
        profile.trace.input.batch_bytes / batch
        for batch, profiles in profiled.by_batch.items()
        for profile in profiles
        if profile.trace.input.batch_bytes > 0
    ]
    return digits(float(np.mean(sizes))) if sizes else None


def _range(batches: Sequence[int]) -> str:
    return str(batches[0]) if len(batches) == 1 else f"{batches[0]} to {batches[-1]}"


def _split(step: MeasuredStep) -> tuple[float, float, float]:
    """Seconds of forward, backward and apply in the computation; the documented shares of it where the profile does not tell."""
    if step.backward_s is None or step.apply_s is None or step.compute_s <= 0:
        return (1 - BACKWARD_SHARE) * step.compute_s, BACKWARD_SHARE * step.compute_s, 0.0
    return step.forward_s, step.backward_s, step.apply_s


def _table(profiled: Profiled) -> StepTable:
    """Steps by batch size, in as many rounds for each: consecutive parts of a profile.

    Profiles of one batch size count as runs if all batch sizes have as many, for then one
    of each makes a round. Steps are without their waiting for input and exposed collectives.
    """
    by_batch = profiled.by_batch
    counts = {len(profiles) for profiles in by_batch.values()}
    runs = counts.pop() if len(counts) == 1 else 1
    series: dict[int, list[Array]] = {}
    splits: dict[int, Array] = {}
    for batch, profiles in by_batch.items():
        each = [np.array([step.compute_s for step in profile.steps]) for profile in profiles]
        series[batch] = each if runs == len(each) else [np.concatenate(each)]
        if any(np.any(times <= 0) for times in series[batch]):
            raise CalibrationError(f"{profiles[0].trace.path}: steps only wait for input: profile steps that compute")
        split = [_split(step) for profile in profiles for step in profile.steps if step.backward_s is not None]
        splits[batch] = np.array(split or [_split(profiles[0].steps[0])])
    rounds = max(min(_ROUNDS, *(len(times) // 2 for all_times in series.values() for times in all_times)), 1)
    return StepTable(
        rounds={batch: [part for times in each for part in np.array_split(times, rounds)] for batch, each in series.items()},
        splits=splits,
        runs=tuple(run for run in range(runs) for _ in range(rounds)),
    )


def _flags(by_batch: Mapping[int, Sequence[StepsOfProfile]]) -> dict[str, str]:
    """Remarks for the provenance, keyed by subject; a key must differ from the other facts, which it would replace."""
    profiles = [profile for same in by_batch.values() for profile in same]
    steps = [step for profile in profiles for step in profile.steps]
    flags = {"overhead": "a profiler was running, which slows steps, especially those with many small operations"}
    if len(by_batch) == 1:
        (batch,) = by_batch
        flags["undetermined"] = (
            f"one batch size ({batch}) does not separate the fixed cost of a step from the cost per sample: forward and backward are "
            "counted per sample; profile a second batch size to predict others"
        )
    for batch, same in by_batch.items():
        seen = _batch_seen(same)
        if seen is not None and seen != batch:
            flags["batch"] = f"the input tensors have {seen} rows in the profile, but batch {batch} was given"
    unsplit = sum(step.backward_s is None for step in steps)
    if unsplit:
        shares = "a third of their time is counted as forward, two thirds as backward"
        flags["split"] = (
            f"no step shows the gradients' operations (compiled by XLA, or one CUDA graph?): {shares}"
            if unsplit == len(steps)
            else f"{unsplit} of {len(steps)} steps show no operations of gradients; they are split like the others"
        )
    if all(profile.trace.input.prefetched for profile in profiles):
        flags["input"] = "prepared during computation; waiting for it is not part of forward"
    elif any(step.input_s > 0 for step in steps):
        flags["input"] = "nothing is prefetched: waiting for input is counted as forward"
    several = max(profile.trace.input.batches_a_step for profile in profiles)
    if several > 1:
        flags["steps_per_execution"] = f"a marked step fetches {several} batches: it may be {several} steps of the model"
    collectives = sorted({op.kind for step in steps for op in step.ops if op.role == "communication"})
    if collectives:
        exposed = math.fsum(step.collective_s for step in steps) / len(steps)
        taken = f"; {format_seconds(exposed)} per step without computing is subtracted" if exposed else ""
        flags["communication"] = (
            f"the profiled run communicated ({', '.join(collectives[:3])}){taken}: waiting for other replicas may remain in the step; a "
            "profile of a single replica is better"
        )
    devices = max(len(profile.trace.devices) for profile in profiles)
    if devices > 1:
        flags["devices"] = f"times are from {profiles[0].trace.device}, one of {devices} devices in the profile"
    marks = [profile.trace.marks for profile in profiles]
    traced, pauses = sum(own.traced for own in marks), sum(own.pauses for own in marks)
    if traced:
        flags["traced"] = f"{traced} steps that traced a graph are left out"
    if pauses:
        flags["pauses"] = f"{pauses} pauses after steps, at least ten times the median step, are left out"
    for profile in profiles:
        flags |= profile.trace.lacks
    return flags


def _batch_seen(profiles: Sequence[StepsOfProfile]) -> int | None:
    """The first dimension that all tensors of a batch have in common, as ``tf.data`` recorded their shapes; None where not."""
    sizes = {int(size) for profile in profiles for size in re.findall(r"\[(\d+)", profile.trace.input.shapes)}
    return sizes.pop() if len(sizes) == 1 else None
