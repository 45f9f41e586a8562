"""From a measurement file of a step to a workload, with intervals and provenance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from calibrate.at_once import AtOnce, is_at_once, processes_at_once
from calibrate.disturbance import DisturbedError, check_levels, choose_rounds
from calibrate.estimators import AffineCost, ChainSlope
from calibrate.measurements import Measurements, MeasurementsError, read_measurements
from calibrate.provenance import provenance
from calibrate.records import CountedStep, Header, Memory, ServerTime
from calibrate.step_cost import StepCost
from calibrate.step_law import StepTimeLaw, drawn_laws
from calibrate.step_table import StepTable
from calibrate.variables import fitted_variables
from simulator.errors import CalibrationError
from simulator.uncertainty import Uncertainty
from simulator.validation_errors import rule_of
from simulator.workload import Affine, CalibrationFit, CalibrationPoint, Counted, ServerCost, Workload, WorkloadRange

__all__ = ["PARAMETERS", "fit_workload"]

Array = NDArray[np.float64]

PARAMETERS = ("forward.base_s", "forward.per_sample_s", "backward.base_s", "backward.per_sample_s", "apply_s")
"""What the bootstrap draws jointly."""

_DRAWS = 200
_DRAWS_KEPT = 60
_MOST_SLOWDOWN = 10.0
"""By a busy core; no workload takes more."""
_LAWS = 50


def fit_workload(
    measurements: Path | Sequence[Path],
    name: str,
    command: str = "",
    seed: int = 0,
    accept_disturbed: bool = False,
    stored: bool = False,
) -> Workload:
    """Fit a workload to the measurements of a step.

    Parameters
    ----------
    measurements
        File written by :func:`calibrate.profile_step`, or the files of several runs of the
        same step, from which the spread between runs is seen; and the files written by
        :func:`calibrate.profile_at_once`, from which is seen what processes of one machine
        have in common.
    name
        Of the workload.
    command
        Command line that made it, for the provenance.
    seed
        Of the bootstrap.
    accept_disturbed
        Fit measurements that cannot be trusted too, with a warning in the provenance:
        ``disturbed``.
    stored
        The files were not measured just now, but given: what they lack is bad input, exit code 2.

    Returns
    -------
    Workload
        Forward, backward and apply as affine functions of the batch, the law of step times,
        variables in the order in which their gradients become ready, 90% intervals and joint
        bootstrap draws.

    Raises
    ------
    MeasurementsError
        A file is damaged, is given twice, or holds no training steps (exit code 2); or
        ``stored`` is set and the files hold too little to be fitted.
    CalibrationError
        What was measured is too little to be fitted; or too few rounds are undisturbed, or the
        runs are at different levels, and ``accept_disturbed`` is not set.
    """
    files = [measurements] if isinstance(measurements, Path) else list(measurements)
    runs = [read_measurements(file) for file in files]
    for file, measured in zip(files, runs, strict=True):
        if measured.header.probe != "step":
            raise MeasurementsError(f"{file}: holds measurements of links, not of a training step; use `paceline calibrate-link`")
        if len(headers := measured.of(Header)) > 1:
            raise MeasurementsError(
                f"{file}: has {len(headers)} headers: it is several files in one; give each of them as a file of its own"
            )
    _check_different(runs)
    alone = [run for run in runs if not is_at_once(run)]
    if not alone:
        raise MeasurementsError(f"{files[0]}: is one of several processes at once, which alone are not fitted; give the runs too")
    measurements = alone[0].path
    try:
        chosen = choose_rounds(alone, accept_disturbed)
        table = StepTable.of(*alone, left_out=chosen.left_out)
        apart = check_levels(table, [run.path.name for run in alone], accept_disturbed)
        remarks = dict(chosen.remarks)
        if apart:
            remarks["disturbed"] = "; ".join(filter(None, (remarks.get("disturbed"), apart)))
        at_once = processes_at_once([run for run in runs if is_at_once(run)], alone, accept_disturbed) if len(alone) < len(runs) else None
        facts = provenance(alone, command) | {"runs": str(len(set(table.runs)))} | remarks
        return _fitted(alone, table, at_once, name, facts, seed)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        fault = ": ".join(filter(None, (".".join(map(str, problem["loc"])), rule_of(problem))))
        kind = MeasurementsError if stored else CalibrationError
        raise kind(f"{measurements}: gives no valid workload ({fault}); measure again") from None
    except CalibrationError as error:
        prefix = "" if str(error).startswith(str(measurements)) else f"{measurements}: "
        kind = MeasurementsError if stored and not isinstance(error, DisturbedError) else CalibrationError
        raise kind(f"{prefix}{error}") from None


def _check_different(runs: Sequence[Measurements]) -> None:
    """One run counted twice would look like two that agree."""
    seen: dict[str, Path] = {}
    for run in runs:
        if run.sha256 in seen:
            before = "given twice" if run.path == seen[run.sha256] else f"the same measurements as {seen[run.sha256]}"
            raise MeasurementsError(f"{run.path}: {before}, which would count one run as two; leave one of the two out")
        seen[run.sha256] = run.path


def _fitted(
    runs: Sequence[Measurements], table: StepTable, at_once: AtOnce | None, name: str, facts: dict[str, str], seed: int
) -> Workload:
    measured = runs[0]
    rng = np.random.default_rng(seed)
    cost = StepCost().fit(table)
    center = _parameters(cost)
    copies = [table.resampled(rng) for _ in range(_DRAWS)]
    draws = np.array([_parameters(StepCost().fit(copy)) for copy in copies])
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    intervals = {key: (_digits(a), _digits(b)) for key, a, b in zip(PARAMETERS, low, high, strict=True)}
    if at_once is not None:
        intervals["run_to_run_shared"] = (_digits(at_once.interval_90[0]), _digits(at_once.interval_90[1]))
    slowdown = at_once.slowdown if at_once is not None else None
    kept = draws[:_DRAWS_KEPT]
    names: tuple[str, ...] = PARAMETERS
    if slowdown is not None:
        intervals["busy_core_slowdown"] = (_digits(slowdown.interval_90[0]), _digits(slowdown.interval_90[1]))
        drawn = np.clip(rng.normal(slowdown.value, slowdown.error, len(kept)), 0.0, _MOST_SLOWDOWN)
        kept, names = np.column_stack([kept, drawn]), (*PARAMETERS, "busy_core_slowdown")
    found = StepTimeLaw().fit(table.factors())
    law = found.law_
    variables = fitted_variables(measured)
    sizes = [variable.size_bytes for variable in variables]
    fingerprint = measured.fingerprint
    device = f"{fingerprint.device_name} ({fingerprint.device_kind})"
    return Workload(
        name=name,
        description=f"{table.batches[0]} to {table.batches[-1]} samples a step on {device}, TensorFlow {fingerprint.tensorflow}",
        model=_model(measured),
        precision=measured.header.arguments.get("precision", "float32"),
        forward=Affine(base_s=_digits(center[0]), per_sample_s=_digits(center[1])),
        backward=Affine(base_s=_digits(center[2]), per_sample_s=_digits(center[3])),
        apply_s=_digits(center[4]),
        jitter=law,
        jitter_draws=drawn_laws(law, (copy.factors() for copy in copies[:_LAWS])),
        jitter_least=_digits(table.fastest()),
        run_to_run_cv=round(min(table.run_to_run_cv(), 1.0), 6),
        run_to_run_shared=_digits(at_once.share) if at_once is not None and at_once.share is not None else None,
        busy_core_slowdown=_digits(min(slowdown.value, _MOST_SLOWDOWN)) if slowdown is not None else 0.0,
        server=_server_cost(measured),
        variables=variables,
        calibrated=WorkloadRange(
            batch=(table.batches[0], table.batches[-1]),
            tensor_bytes=(min(sizes), max(sizes)),
            device=device,
        ),
        uncertainty=Uncertainty(parameters=names, draws=tuple(tuple(_digits(value) for value in draw) for draw in kept)),
        fit=CalibrationFit(
            points=tuple(_point(table, batch) for batch in table.batches),
            relative_residual=_digits(cost.relative_residual_),
            laws=found.scores_,
            intervals_90=intervals,
            peak_memory_bytes={str(record.batch): float(record.peak_bytes) for record in measured.of(Memory)},
        ),
        provenance=facts | ({"at_once": at_once.text} if at_once is not None else {}),
        counted=_counted(measured),
    )


def _parameters(cost: StepCost) -> Array:
    """The values of ``PARAMETERS``."""
    return np.array([cost.forward_.base_s, cost.forward_.per_sample_s, cost.backward_.base_s, cost.backward_.per_sample_s, cost.apply_s_])


def _point(table: StepTable, batch: int) -> CalibrationPoint:
    times = table.times(batch)
    mean = table.mean(batch)
    p5, median, p95 = (float(value) for value in np.quantile(times, [0.05, 0.5, 0.95]))
    return CalibrationPoint(
        batch=batch,
        steps=len(times),
        mean_s=_digits(mean),
        p5_s=_digits(p5),
        median_s=_digits(median),
        p95_s=_digits(p95),
        forward_s=_digits(mean * table.share(batch, "forward")),
        backward_s=_digits(mean * table.share(batch, "backward")),
        apply_s=_digits(mean * table.share(batch, "apply")),
    )


def _server_cost(measured: Measurements) -> ServerCost:
    """Seconds to apply one gradient tensor on a CPU, per tensor and per byte; zero where it was not measured."""
    records = measured.of(ServerTime)
    chain = ChainSlope().fit(
        [one.size_bytes for one in records],
        [one.applies for one in records],
        [one.round for one in records],
        [one.seconds for one in records],
    )
    sizes, seconds = chain.points()
    if len(sizes) < 2:
        return ServerCost()
    cost = AffineCost().fit(sizes, seconds)
    return ServerCost(base_s=_digits(cost.base_), per_byte_s=_digits(cost.slope_))


def _model(measured: Measurements) -> str:
    """The file that builds what was measured, without its ending: by this name other workloads of it are known."""
    arguments = measured.header.arguments
    target = arguments.get("model") or arguments.get("step") or ""
    return Path(str(target).rpartition(":")[0]).stem


def _counted(measured: Measurements) -> Counted | None:
    """Operations and bytes as a line through the smallest and the largest batch; none where a step could not be counted."""
    found = [
        (record.batch, record.flops, record.bytes, record.kernels)
        for record in sorted(measured.of(CountedStep), key=lambda record: record.batch)
        if record.flops and record.bytes and record.kernels
    ]
    if len(found) < 2 or len(found) < len(measured.of(CountedStep)):
        return None
    (fewest, _, first_bytes, _), (most, flops, last_bytes, kernels) = found[0], found[-1]
    slope = max(0.0, (last_bytes - first_bytes) / (most - fewest))
    return Counted(
        flops_per_sample=_digits(flops / most),
        base_bytes=_digits(max(0.0, last_bytes - slope * most)),
        per_sample_bytes=_digits(slope),
        kernels=kernels,
    )


def _digits(value: float) -> float:
    """Seven digits: more than any clock gives, and readable in the file."""
    return float(f"{float(value):.7g}")
