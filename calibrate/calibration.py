"""Measures and fits in one call: a training step with related measurements, and gradients.

Only the order of the calls is here, for ``paceline.api.calibrating`` and studies. Measuring is in :mod:`calibrate.profiling`, to which
``options`` go on unchanged, and fitting in ``calibrate/fit``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

from calibrate.fit.noise_scale import NoiseFit, fit_noise_scale
from calibrate.fit.step import fit_workload
from calibrate.learning import target_of
from calibrate.measurements import MeasurementsError, read_measurements
from calibrate.profiling import (
    FEWEST_STEPS,
    Running,
    StepOptions,
    counting,
    obstacle_to_at_once,
    plan_in,
    profile_at_once,
    profile_noise_scale,
    profile_runs,
)
from simulator.base.errors import PacelineWarning
from simulator.spec.workload import Workload


def calibrate_step(
    target: str,
    name: str,
    *,
    command: str = "",
    runs: int = 3,
    at_once: int = 1,
    launches: int = 5,
    accept_disturbed: bool = False,
    remark: Callable[[str], None] | None = None,
    **options: Unpack[StepOptions],
) -> Workload:
    """Time steps in separate runs, and then in several processes at once where that is asked for and possible, and fit a workload.

    Warns where processes at once are asked for, but not possible. Progress counts steps, then launches at once.

    Parameters
    ----------
    target, name, options
        As for :func:`calibrate.profiling.profile_step`.
    command
        What made it, for the provenance.
    at_once, launches
        Processes at the same time, and how often they are started, as for :func:`calibrate.profiling.profile_at_once`; 1 measures none.
        A ``budget`` is that of the runs before them.
    accept_disturbed
        As for :func:`calibrate.fit.step.fit_workload`.
    remark
        As for :func:`calibrate.profiling.profile_runs`.
    """
    progress = options.get("progress")
    options["progress"] = counting("steps", progress)
    of_runs: StepOptions = {**options, "accept": accept_disturbed}
    files = profile_runs(target, name, runs=runs, remark=remark, **of_runs)
    if options.pop("budget", None) is not None and at_once > 1 and (plan := plan_in(files[0])) is not None:
        options |= {"rounds": plan.rounds, "steps": max(plan.steps, FEWEST_STEPS)}
    options.pop("layers", None)  # which are those of the runs
    if at_once > 1:
        obstacle = obstacle_to_at_once(at_once, read_measurements(files[0]).fingerprint.device_kind)
        if obstacle:
            without = f"`at_once={at_once}` is left out: {obstacle}; the share common to processes of one machine stays unknown"
            warnings.warn(without, PacelineWarning, stacklevel=2)
        else:
            fit_workload(files, name, accept_disturbed=accept_disturbed)  # what cannot be trusted is refused before more is measured
            beside: StepOptions = {**options, "out": files[0], "progress": counting("launches at once", progress)}
            files += profile_at_once(target, name, processes=at_once, launches=launches, **beside)
    return fit_workload(files, name, command, accept_disturbed=accept_disturbed)


def calibrate_again(files: Sequence[Path], name: str, command: str = "", *, accept_disturbed: bool = False) -> Workload:
    """Fit the measurement files of an earlier calibration: those of steps, and one of gradients where it is among them.

    Raises
    ------
    MeasurementsError
        As of :func:`calibrate.fit.step.fit_workload`; or there are several files of gradients.
    """
    of_gradients = [file for file in files if read_measurements(file).header.probe == "noise_scale"]
    if len(of_gradients) > 1:
        raise MeasurementsError(f"{of_gradients[1]}: is a second file of gradient norms after {of_gradients[0]}: leave one of them out")
    steps = [file for file in files if file not in of_gradients] or files  # of gradients alone, the fit of steps says what is lacking
    workload = fit_workload(steps, name, command, accept_disturbed=accept_disturbed, stored=True)
    return with_noise_scale(workload, fit_noise_scale(of_gradients[0])) if of_gradients else workload


def calibrate_noise_scale(
    problem: str, name: str, *, batch: int, epochs: float, device: str | None = None, **running: Unpack[Running]
) -> NoiseFit:
    """Measure gradients at two batch sizes while a model learns, and fit the gradient noise scale.

    ``problem`` is one of :data:`calibrate.learning.PROBLEMS`, or ``FILE.py:FUNCTION``; the others are those of
    :func:`calibrate.profiling.profile_noise_scale`.
    """
    target = target_of(problem, "noise_scale")
    running["progress"] = counting("moments of the training", running.get("progress"))
    return fit_noise_scale(profile_noise_scale(target, name, batch=batch, epochs=epochs, device=device, **running))


def with_noise_scale(workload: Workload, fitted: NoiseFit) -> Workload:
    """A workload with a noise scale, and what it rests on in its provenance."""
    provenance = {**workload.provenance, "noise_scale": fitted.text}
    return workload.model_copy(update={"noise_scale": fitted.noise_scale, "provenance": provenance})
