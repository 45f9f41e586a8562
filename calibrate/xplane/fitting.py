"""From profiles that the user already has to a workload, with intervals and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrate.estimators import AffineMean
from calibrate.step_cost import StepCost
from calibrate.step_law import StepTimeLaw, drawn_laws
from calibrate.step_table import StepTable
from calibrate.xplane.batches import Profiled
from calibrate.xplane.gradients import gradient_ops, readiness
from calibrate.xplane.provenance import device_name, facts_of, flags_of
from calibrate.xplane.variables import ModelVariables
from simulator.distributions import Constant, Distribution
from simulator.uncertainty import Uncertainty
from simulator.workload import Affine, CalibrationFit, CalibrationPoint, LawScore, Variable, Workload, WorkloadRange

__all__ = ["fit_profiles"]

Array = NDArray[np.float64]

_FEWEST_FOR_A_LAW = 10
_DRAWS = 200
_DRAWS_KEPT = 60
_LAWS = 50


def fit_profiles(
    profiled: Profiled, model: ModelVariables, name: str, command: str = "", seed: int = 0, precision: str = "float32"
) -> Workload:
    """Fit a workload to profiles.

    From two batch sizes on, forward and backward are affine functions of the batch, as
    those of :func:`calibrate.fit_workload`. One batch size cannot tell what a step costs
    whatever the batch from what a sample costs: then all of forward and backward is
    counted as the samples', which ``provenance`` says and which holds at that batch only.

    Parameters
    ----------
    profiled
        The profiles' steps.
    model
        The model's variables, which profiles do not tell.
    name
        Of the workload.
    command
        Command line that made it, for the provenance.
    seed
        Of the bootstrap.
    precision
        ``float32`` or ``mixed_float16``, which a profile does not tell either.

    Raises
    ------
    CalibrationError
        A step takes no time.
    """
    table = profiled.table()
    rng = np.random.default_rng(seed)
    cost = StepCost().fit(table)
    parameters = _parameters(cost, table.batches)
    center = np.array(list(parameters.values()))
    copies = _copies(table, rng)
    draws = np.array([list(_parameters(StepCost().fit(copy), table.batches).values()) for copy in copies]) if copies else None
    flags = flags_of(profiled.by_batch)
    law, scores = _law(table)
    if isinstance(law, Constant):
        flags["jitter"] = f"{profiled.count} steps are too few for the law of their times ({_FEWEST_FOR_A_LAW} are needed): none is assumed"
    if draws is None:
        flags["intervals"] = "too few steps for intervals; profile 10 or more"
    shares = readiness([one.name for one in model.variables], gradient_ops(step for one in profiled.profiles for step in one.steps))
    unseen = [one.name for one in model.variables if one.name not in shares]
    if unseen:
        flags["gradients"] = (
            f"{len(unseen)} of {len(model.variables)} variables, such as {unseen[0]}, were found in no operation's name: "
            "each counts as ready at the end of the backward pass"
        )
    if any("embedding" in one.name.lower() for one in model.variables):
        flags["sparse"] = "gradients of embeddings are counted as dense: a profile does not tell how many rows a sample touches"
    if model.order != "creation":
        flags["order"] = f"variables are taken to have been created in the {model.order}'s order, which decides their servers"
    sizes = [one.bytes for one in model.variables]
    device = device_name(profiled.profiles[0])
    inputs = _input(profiled)
    return Workload(
        name=name,
        description=f"{_range(table.batches)} samples a step on {device}, from a profile",
        precision=precision,
        forward=Affine(base_s=parameters.get("forward.base_s", 0.0), per_sample_s=parameters["forward.per_sample_s"]),
        backward=Affine(base_s=parameters.get("backward.base_s", 0.0), per_sample_s=parameters["backward.per_sample_s"]),
        apply_s=parameters["apply_s"],
        input=inputs,
        input_bytes_per_sample=_bytes_per_sample(profiled),
        jitter=law,
        jitter_draws=drawn_laws(law, (copy.factors() for copy in copies[:_LAWS])),
        jitter_least=_digits(table.fastest()),
        run_to_run_cv=round(min(table.run_to_run_cv(), 1.0), 6),
        variables=_variables(model, shares),
        calibrated=WorkloadRange(batch=(table.batches[0], table.batches[-1]), tensor_bytes=(min(sizes), max(sizes)), device=device),
        uncertainty=None
        if draws is None
        else Uncertainty(
            parameters=tuple(parameters), draws=tuple(tuple(_digits(value) for value in draw) for draw in draws[:_DRAWS_KEPT])
        ),
        fit=CalibrationFit(
            points=tuple(_point(table, batch) for batch in table.batches),
            relative_residual=_digits(cost.relative_residual_),
            laws=scores,
            intervals_90={} if draws is None else _intervals(parameters, center, draws),
        ),
        provenance=facts_of(profiled.profiles, len(set(table.runs)), model.source, command) | flags,
    )


def _parameters(cost: StepCost, batches: Sequence[int]) -> dict[str, float]:
    """The fitted parameters by name; without the fixed parts of forward and backward where there is one batch size."""
    found = {
        "forward.base_s": cost.forward_.base_s,
        "forward.per_sample_s": cost.forward_.per_sample_s,
        "backward.base_s": cost.backward_.base_s,
        "backward.per_sample_s": cost.backward_.per_sample_s,
        "apply_s": cost.apply_s_,
    }
    return {key: _digits(value) for key, value in found.items() if len(batches) > 1 or not key.endswith(".base_s")}


def _copies(table: StepTable, rng: np.random.Generator) -> list[StepTable]:
    """Bootstrap copies; none where there is one round only."""
    return [table.resampled(rng) for _ in range(_DRAWS)] if len(table.runs) > 1 else []


def _intervals(parameters: Mapping[str, float], center: Array, draws: Array) -> dict[str, tuple[float, float]]:
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    low, high = np.minimum(low, center), np.maximum(high, center)
    return {key: (_digits(a), _digits(b)) for key, a, b in zip(parameters, low, high, strict=True)}


def _law(table: StepTable) -> tuple[Distribution, tuple[LawScore, ...]]:
    factors = table.factors()
    if len(factors) < _FEWEST_FOR_A_LAW:
        return Constant(), ()
    law = StepTimeLaw().fit(factors)
    return law.law_, law.scores_


def _input(profiled: Profiled) -> Affine:
    """Seconds to prepare a batch while the one before is computed: for each sample, or affine from two batch sizes on."""
    means = {batch: float(np.mean([one.input.prepare_s for one in ones])) for batch, ones in profiled.by_batch.items()}
    if not all(means.values()):
        return Affine(base_s=0.0, per_sample_s=0.0)
    if len(means) == 1:
        ((batch, seconds),) = means.items()
        return Affine(base_s=0.0, per_sample_s=_digits(seconds / batch))
    cost = AffineMean().fit(list(means), list(means.values()))
    return Affine(base_s=_digits(cost.base_), per_sample_s=_digits(cost.slope_))


def _bytes_per_sample(profiled: Profiled) -> float | None:
    sizes = [one.input.batch_bytes / batch for batch, ones in profiled.by_batch.items() for one in ones if one.input.batch_bytes > 0]
    return _digits(float(np.mean(sizes))) if sizes else None


def _variables(model: ModelVariables, shares: Mapping[str, float]) -> tuple[Variable, ...]:
    created = {one.name: index for index, one in enumerate(model.variables)}
    ordered = sorted(model.variables, key=lambda one: (shares.get(one.name, 1.0), -created[one.name]))
    last = max(shares.get(one.name, 1.0) for one in ordered)
    return tuple(
        Variable(
            name=one.name,
            size_bytes=one.bytes,
            creation_index=created[one.name],
            # medians of shares end just below 1; the last gradient is ready when the pass ends
            ready=min(round(shares.get(one.name, 1.0) / last, 6), 1.0),
            # a scalar has no rows to be cut between
            rows=one.shape[0] if one.shape else None,
        )
        for one in ordered
    )


def _point(table: StepTable, batch: int) -> CalibrationPoint:
    times, mean = table.times(batch), table.mean(batch)
    p5, middle, p95 = (_digits(value) for value in np.quantile(times, [0.05, 0.5, 0.95]))
    shares = {f"{phase}_s": _digits(mean * table.share(batch, phase)) for phase in ("forward", "backward", "apply")}
    return CalibrationPoint(batch=batch, steps=len(times), mean_s=_digits(mean), p5_s=p5, median_s=middle, p95_s=p95, **shares)


def _range(batches: Sequence[int]) -> str:
    return str(batches[0]) if len(batches) == 1 else f"{batches[0]} to {batches[-1]}"


def _digits(value: float) -> float:
    """Seven digits: more than any clock gives, and readable in the file."""
    return float(f"{float(value):.7g}")
