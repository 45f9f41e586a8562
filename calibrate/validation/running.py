"""Runs a matrix of testbed settings: measures all, fits the machine to one part, predicts the other part, compares.

One setting is measured in :mod:`calibrate.testbed.running`; a setting is not measured again where the folder has a whole
file of it, which is found by the setting's hash in the file's name. The matrix itself is in matrix.py.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from calibrate.fit.estimators import persistence_of, with_persistence
from calibrate.probing import Progress
from calibrate.testbed.clocks import busy_cores
from calibrate.testbed.fitting import fit_platform
from calibrate.testbed.platform import MEANINGS, PARAMETER_COLUMNS, Platform
from calibrate.testbed.prediction import predict_setting
from calibrate.testbed.readings import Readings, read_run
from calibrate.testbed.running import measure_setting, retried
from calibrate.testbed.scenarios import RealCompute, scenario_of
from calibrate.testbed.setting import Compute, TestbedSetting
from calibrate.validation.comparison import Compared, histogram_distance, reached_of
from calibrate.validation.matrix import Matrix, times_compute
from calibrate.validation.validation import Outline, Validation, largest_errors, scores_of
from simulator.base.errors import CalibrationError
from simulator.base.table import Column, Table
from simulator.base.text import counted, digits
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve
from simulator.spec.distributions import Empirical

_QUANTILES = 64
_BASELINE_RUNS = 9
_MOST_IN_A_ROW = 3
"""Settings in a row that cannot be measured, after which the fault is taken to be the machine's."""


Unmeasured = tuple[str, str, str]
"""A setting of which there is no measurement to compare: its group, its label, and what it failed with."""


def _validation(matrix: Matrix, rows: Sequence[Compared], platform: Platform, unmeasured: Sequence[Unmeasured]) -> Validation:
    """The validation of a matrix."""
    chosen = (
        "named before anything was measured"
        if matrix.drawn_by is None
        else f"drawn at random with seed {matrix.drawn_by} from the space in docs/measure.md"
    )
    notes, tables, extra = [], [largest_errors(rows)], {"platform": platform.model_dump(mode="json"), "drawn_by": matrix.drawn_by}
    if unmeasured:
        notes.append(
            f"{len(unmeasured)} of {counted(len(matrix.settings), 'setting')} could not be measured and "
            f"{'is' if len(unmeasured) == 1 else 'are'} not scored: {', '.join(label for _, label, _ in unmeasured)}. Run the same "
            "command again to retry."
        )
        columns = (Column("group", "text", "Group"), Column("setting", "text", "Setting"), Column("why", "text", "Why"))
        tables.append(Table("Settings that could not be measured", columns, tuple(unmeasured), "unmeasured"))
        extra["unmeasured"] = {label: why for _, label, why in unmeasured}
    return Validation(
        key=outline_of(matrix).key,
        title=f"Real TensorFlow runs on this machine ({matrix.name})",
        rows=tuple(rows),
        scores=tuple(scores_of(rows)),
        about=(
            f"{len(matrix.fit)} small settings (1 worker, or 2 if needed) were measured and fitted; {len(matrix.held_out)} others, "
            f"{chosen}, were predicted and then measured. Each was run {matrix.repeats} times with a new cluster of processes.",
            "An interval contains 90% of single runs: it includes the distribution of compute, the uncertainty of the fit, the error of "
            "whole settings of the fit (misfit) and the scatter of repeats (noise).",
            "The max-min rule shares links (and cores, with real compute) evenly, puts 4 ms between steps, and models nothing else.",
        ),
        notes=tuple(notes),
        tables=tuple(tables),
        details=(
            # each parameter, with what determines it
            replace(_PARAMETERS, rows=tuple((*row, platform.parameters[str(row[0])].why) for row in platform.table().rows)),
        ),
        extra=extra,
    )


_PARAMETERS = Table(
    "What was fitted",
    (*PARAMETER_COLUMNS, Column("why", "text", "fitted to")),
    (),
    "parameters",
    "Seconds and bytes. A parameter that the runs do not determine keeps its documented prior.",
)


def outline_of(matrix: Matrix) -> Outline:
    """Outline of the validation of a matrix."""
    return Outline(f"testbed-{matrix.name}", details=(_PARAMETERS,))


def measure_matrix(
    matrix: Matrix, folder: Path, *, python: str | None = None, timeout_s: float = 600.0, progress: Progress | None = None
) -> list[Readings | str]:
    """Measure every setting; one that has been measured whole before, with the same repeats and seed, is not measured again.

    A setting that fails is run once more; if it fails again, the others are still measured, and its error takes its place.

    Raises
    ------
    CalibrationError
        Several settings in a row could not be measured; what came before is kept, and the same call goes on there.
    """
    outcomes: list[Readings | str] = []
    settings, report = matrix.settings, progress or (lambda *_: None)
    for number, setting in enumerate(settings):
        report(number, len(settings), setting.label)
        measure = partial(measure_setting, setting, folder, repeats=matrix.repeats, seed=matrix.seed, timeout_s=timeout_s, python=python)
        try:
            outcomes.append(_measured_before(setting, matrix, folder) or retried(measure, setting.label))
        except CalibrationError as error:
            outcomes.append(str(error))
        failed = [why for why in outcomes[-_MOST_IN_A_ROW:] if isinstance(why, str)]
        if len(failed) == _MOST_IN_A_ROW:
            raise CalibrationError(f"{_MOST_IN_A_ROW} settings in a row could not be measured; {failed[-1]}")
    report(len(settings), len(settings), "measured")
    return outcomes


def pending_settings(matrix: Matrix, folder: Path) -> list[TestbedSetting]:
    """Settings that :func:`measure_matrix` would have to measure: those of which the folder has no whole measurement."""
    return [setting for setting in matrix.settings if _measured_before(setting, matrix, folder) is None]


def _measured_before(setting: TestbedSetting, matrix: Matrix, folder: Path) -> Readings | None:
    for path in sorted(folder.glob(f"*-{setting.hash}-testbed-*.ndjson"), reverse=True):
        with contextlib.suppress(CalibrationError):
            readings = read_run(path)
            asked = readings.file.header.arguments
            whole = len(readings.runs) == matrix.repeats == asked.get("repeats") and asked.get("seed") == matrix.seed
            if whole and readings.setting == setting:
                return readings
    return None


def validate_matrix(
    matrix: Matrix,
    folder: Path,
    *,
    python: str | None = None,
    timeout_s: float = 600.0,
    replications: int = 59,
    progress: Progress | None = None,
) -> tuple[Validation, Platform]:
    """Measure, fit, predict, compare.

    Parameters
    ----------
    matrix
        What is fitted, and what is predicted.
    folder
        Of the raw measurements; what is there already is used.
    replications
        Simulated runs behind each prediction.
    progress
        Called with what is done, how much there is, and what is going on.

    Returns
    -------
    Validation, Platform
        A row for each setting, those of the fit first (``fitted``); and the fit, only to the first part.

    Raises
    ------
    CalibrationError
        Several settings in a row could not be measured, or the fit lacks the runs that it needs.
    """
    outcomes = measure_matrix(matrix, folder, python=python, timeout_s=timeout_s, progress=progress)
    groups = ["fit"] * len(matrix.fit) + [held.group for held in matrix.held_out]
    unmeasured: list[Unmeasured] = [
        (group, setting.label, outcome)
        for group, setting, outcome in zip(groups, matrix.settings, outcomes, strict=True)
        if isinstance(outcome, str)
    ]
    fitted = [outcome for outcome in outcomes[: len(matrix.fit)] if isinstance(outcome, Readings)]
    if not fitted:
        raise CalibrationError(f"no setting of the fit could be measured; {unmeasured[0][2]}")
    _check_machine([outcome for outcome in outcomes if isinstance(outcome, Readings)])
    platform = fit_platform(fitted, matrix.name, fitted[0].cores, seed=matrix.seed, progress=progress)
    rows, report = [], progress or (lambda *_: None)
    for number, (measured, group) in enumerate(zip(outcomes, groups, strict=True)):
        if isinstance(measured, str) or measured.setting.mode == "apart":  # says what busy cores cost; nothing is predicted for it
            continue
        report(number, len(outcomes), f"predicting {measured.setting.label}")
        try:
            rows.append(_compared(measured, group, platform, fitted, replications, matrix.seed))
        except CalibrationError as error:
            if not unmeasured:
                raise
            unmeasured.append((group, measured.setting.label, str(error)))  # what the fit lacks, it could not measure
    report(len(outcomes), len(outcomes), "predicted")
    return _validation(matrix, rows, platform, unmeasured), platform


def _check_machine(readings: list[Readings]) -> None:
    """Refuse measurements of different machines: what is predicted must have run where the fit was made."""
    first, *others = (reading.file for reading in readings)
    for file, key in itertools.product(others, ("device_name", "cores", "tensorflow")):
        here, there = (each.fingerprint.model_dump().get(key) for each in (first, file))
        if here != there:
            raise CalibrationError(
                f"{file.path}: was measured with {key} {there!r}, {first.path.name} with {here!r}: measure both on one machine, in a "
                "separate folder (`measurements`)"
            )


def _compared(reading: Readings, group: str, platform: Platform, fitted: list[Readings], replications: int, seed: int) -> Compared:
    setting = reading.setting
    compute = compute_of(setting, fitted)
    one_gpu = compute is not None and reading.file.fingerprint.device_kind == "GPU"
    prediction = predict_setting(setting, platform, compute=compute, one_gpu=one_gpu, replications=replications, seed=seed + 1)
    measured, predicted = reading.staleness, prediction.staleness
    return Compared(
        name=setting.label,
        group=group,
        fitted=group == "fit",
        measured=reading.updates_per_s,
        predicted=prediction.updates_per_s,
        staleness_measured=reading.mean_staleness,
        staleness_predicted=prediction.mean_staleness,
        staleness_distance=histogram_distance(measured, predicted) if measured and predicted else None,
        baselines={"max-min": _max_min(setting, 1.0 if one_gpu else platform.cores, seed, compute)},
        settings={"mode": setting.mode, "workers": setting.workers, "servers": setting.servers, "model": setting.model_name},
        reached=reached_of(prediction.applied, prediction.drawn, source=platform.name, series=group),
    )


_MAX_MIN = {"wire_bytes_per_byte": 1.03, "coordinator_s": 0.004, "session_s": 0.004, "ring_step_s": 0.004, "loopback_bytes_per_s": 1e10}
"""Inputs of the simplest rule: headers, and a gap of 4 ms between steps."""


def _max_min(setting: TestbedSetting, cores: float, seed: int, compute: RealCompute | None) -> float:
    """Updates/s with links, and where compute is real the cores, shared max-min fairly, a constant gap between steps, and nothing else.

    A worker's real compute is what a single worker's takes, times workers over cores where
    there are more workers than cores: the rule knows its distribution as for emulated compute.
    """
    plain = setting
    if setting.link is not None:
        plain = plain.model_copy(update={"link": setting.link.model_copy(update={"sharing": "fair"})})
    if compute is not None:
        held_s = compute.mean_s * max(setting.workers / cores, 1.0)
        plain = plain.model_copy(update={"compute": Compute(mean_s=held_s, law=compute.law)})
    values = dict.fromkeys(MEANINGS, 0.0) | _MAX_MIN
    scenario = resolve(scenario_of(plain, values, cores, replications=2, seed=seed))
    runs = [replicate(scenario, number) for number in range(_BASELINE_RUNS)]
    return float(np.mean([run.updates / run.window_s for run in runs]))


def compute_of(setting: TestbedSetting, fitted: list[Readings]) -> RealCompute | None:
    """The compute of a real model, as the fit's runs timed it with one worker and with several apart; None where it is emulated."""
    if setting.compute.kind != "real":
        return None
    alone = [reading for reading in fitted if times_compute(reading.setting, setting)]
    beside = busy_cores(setting, fitted)
    if beside is None and not alone:
        raise CalibrationError(
            f"{setting.label}: no run of the fit times {setting.model} with batch {setting.batch} and 1 worker; add one to [[fit]]"
        )
    # beside a worker's step there is some work on messages, which slows it a little
    each = list(beside.alone_s) if beside is not None else [run.parts()["compute"] for reading in alone for run in reading.runs]
    times = np.concatenate(each)
    mean_s = float(times.mean())
    factors = np.quantile(times / mean_s, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    return RealCompute(
        mean_s=mean_s,
        law=with_persistence(Empirical(values=tuple(digits(value, 6) for value in factors)), persistence_of(each)),
        mean_error_s=statistics.stdev([float(times_s.mean()) for times_s in each]) / math.sqrt(len(each)) if len(each) > 1 else 0.0,
        with_call=beside is None and setting.mode == "mirrored",
        busy_core_slowdown=beside.slowdown if beside is not None else 0.0,
        busy_core_error=beside.error if beside is not None else 0.0,
    )
