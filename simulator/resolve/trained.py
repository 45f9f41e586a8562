"""Applies ``[training]`` to a workload: passes made in parts, or a part of them twice, and times in another precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from simulator.base.errors import ScenarioError
from simulator.base.spec import Itself
from simulator.base.text import format_number
from simulator.resolve.device_transfer import scaled
from simulator.resolve.precision import precision_gain
from simulator.resolve.roofline import Range
from simulator.scenario import Scenario
from simulator.spec.accelerator import accelerator_named
from simulator.spec.computed import parameter_bytes_of
from simulator.spec.figures import Assumed
from simulator.spec.layers import Layer
from simulator.spec.training import Passes, Precision, Recast, Training
from simulator.spec.workload import Workload


def as_trained(scenario: Scenario) -> Scenario:
    """The scenario with its workload as the training computes it; itself where nothing is asked for, or all is done.

    Everything that asks a workload for its seconds sees the parts that its batch is cut
    into: estimates, bounds, engines and the replica that speed-up is counted against. A
    strategy that cuts batches by itself gets the times of one pass as they are.

    Raises
    ------
    ScenarioError
        Nothing says how fast the workload is in that precision.
    """
    training, load = scenario.training, scenario.workload
    found = load
    if training.precision is not None and training.precision != load.precision:
        device = scenario.cluster.device or load.device
        found = _in_precision(Itself(load), training.precision, training.precision_factor, training.precision_source, device)
    passes = None
    if not scenario.strategy.cuts_batches and (training.micro_batches > 1 or training.recompute != "none"):
        passes = Passes(micro_batches=training.micro_batches, recomputed=recomputed_share(training, load.layers))
    if passes != found.passes:
        found = found.model_copy(update={"passes": passes})
    return scenario if found is load else scenario.model_copy(update={"workload": found})


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


def assumed_in_training(scenario: Scenario) -> Iterator[Assumed]:
    """What was taken for what ``[training]`` of a resolved scenario leaves out."""
    training, recast = scenario.training, scenario.workload.recast
    if recast is not None and training.precision_factor is None:
        low, mid, high = (format_number(each) for each in recast.factor)
        yield Assumed(path="training.precision_factor", value=f"{mid} ({low} to {high})", reason=recast.text)
    if training.skipped and training.skipped_share is None:
        reason = "TensorFlow's loss scale doubles after 2,000 steps that went well and overflows once at the level that the model allows"
        yield Assumed(path="training.skipped_share", value=format_number(training.skipped), reason=reason)


@lru_cache(maxsize=256)
def _in_precision(this: Itself[Workload], precision: Precision, given: tuple[float, ...] | None, source: str, device: str) -> Workload:
    """A workload's times in another precision, by the factor that is given or by published pairs."""
    load = this.spec
    sources: tuple[str, ...] = (source,)
    if given is not None:
        low, high = given[0], given[-1]
        factor = Range(low, given[1] if len(given) == 3 else (low * high) ** 0.5, high)
        text = f"by the factor that the scenario gives ({source})"
    else:
        factor, text, sources = _published(load, precision, device)
    recast = Recast(from_precision=load.precision, factor=tuple(factor), text=text, sources=sources)
    shorter = parameter_bytes_of(precision) / parameter_bytes_of(load.precision)
    if shorter != 1.0:
        load = _with_values(load, shorter, updates=given is None)
    return scaled(load, factor, b"precision").model_copy(update={"precision": precision, "recast": recast})


def _with_values(load: Workload, shorter: float, *, updates: bool) -> Workload:
    """A workload whose variables take so many times as many bytes, and their update, which memory limits, so many times as long."""
    variables = tuple(
        each.model_copy(
            update={
                "size_bytes": each.size_bytes * shorter,
                "sparse_bytes_per_sample": each.sparse_bytes_per_sample and each.sparse_bytes_per_sample * shorter,
            }
        )
        for each in load.variables
    )
    if not updates:
        return load.model_copy(update={"variables": variables})
    drawn = load.uncertainty
    if drawn is not None and "apply_s" in drawn.parameters:
        place = drawn.parameters.index("apply_s")
        draws = tuple((*draw[:place], draw[place] * shorter, *draw[place + 1 :]) for draw in drawn.draws)
        drawn = drawn.model_copy(update={"draws": draws})
    return load.model_copy(update={"variables": variables, "apply_s": load.apply_s * shorter, "uncertainty": drawn})


def _published(load: Workload, precision: Precision, device: str) -> tuple[Range, str, tuple[str, ...]]:
    """The factor of time that published pairs of float32 and mixed precision say; none for what multiplies in the same format.

    Raises
    ------
    ScenarioError
        There are too few, or none of these two precisions.
    """
    if {precision, load.precision} == {"bfloat16", "mixed_bfloat16"}:
        return Range(1.0, 1.0, 1.0), "as both multiply in bfloat16; the update moves as many bytes as its values have", ()
    mixed = precision if load.precision == "float32" else load.precision
    problem = f"no three models are published in both on {device!r}" if device else "neither cluster nor workload names a device"
    if "float32" not in (precision, load.precision):
        problem = "published pairs have float32 on one side"
    elif mixed != "mixed_float16" and not _alike(device):
        problem = f"published pairs are of float16, and models/devices does not say that {device!r} is as fast in bfloat16"
    elif (gain := precision_gain(device, load.model or None) if device else None) is not None:
        low, mid, high, sources = gain
        factor = Range(1 / high, 1 / mid, 1 / low) if load.precision == "float32" else Range(low, mid, high)
        count = f"{len(sources)} sources" if len(sources) > 1 else "one source"
        text = f"by published throughputs in float32 and mixed float16 on {device!r} ({count}, models/published/speeds.csv)"
        return factor, text, sources
    raise ScenarioError(
        f"training.precision: the workload {load.name!r} was measured in {load.precision}, and nothing says how long it takes in "
        f'{precision} ({problem}): measure it with "paceline calibrate --precision", or give time in {precision} / time in '
        f'{load.precision} yourself: training.precision_factor = [0.4, 0.6] and training.precision_source = "..."'
    )


def _alike(device: str) -> bool:
    """Whether a device's peak is the same in both short formats."""
    known = accelerator_named(device) if device else None
    return known is not None and known.peak("mixed_float16") is not None and known.peak("mixed_float16") == known.peak("mixed_bfloat16")
