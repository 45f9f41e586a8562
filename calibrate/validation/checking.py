"""A matrix checked whole before anything of it is measured: what would fail, or be predicted from a prior, is told at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate.testbed.busy_cores import computes_like
from calibrate.testbed.clocks import is_fitted
from calibrate.testbed.model import builder_of
from calibrate.testbed.running import faults_of_machine, guessed_step_s
from calibrate.testbed.setting import TestbedSetting
from calibrate.testbed.tcp_sharing import shows_tcp
from calibrate.validation.matrix import Matrix
from simulator.errors import InputError, ScenarioError

__all__ = ["Need", "check_matrix", "faults_of", "times_compute"]

Test = Callable[[TestbedSetting], bool]
_EACH_S = 1.0
"""What is taken from the time limit of a repeat, for its last step to end."""


@dataclass(frozen=True)
class Need:
    """What a prediction takes from the fit's part.

    Attributes
    ----------
    concerns
        Whether a held-out setting needs it.
    given_by
        Whether a setting of the fit gives it.
    what
        The parameters that only such a setting determines.
    add
        A setting that would, in words.
    """

    concerns: Test
    given_by: Test
    what: str
    add: str


NEEDS = (
    Need(
        lambda one: one.link is not None and one.servers > 0,
        lambda one: is_fitted(one) and one.link is not None and one.servers > 0,
        "what tensors cost on a shaped link",
        "1 worker, a server, a link, constant compute",
    ),
    Need(
        lambda one: one.link is None and one.servers > 0,
        lambda one: is_fitted(one) and one.link is None and one.servers > 0,
        "what bytes cost over loopback",
        "1 worker, a server, no link, constant compute",
    ),
    Need(
        lambda one: one.link is not None and one.mode == "ring",
        lambda one: is_fitted(one) and one.link is not None and one.mode == "ring",
        "what a ring's messages cost on a shaped link",
        'mode = "ring" with 2 workers, a link, constant compute',
    ),
    Need(
        lambda one: one.link is None and one.mode == "ring",
        lambda one: is_fitted(one) and one.link is None and one.mode == "ring",
        "what a ring's bytes cost over loopback",
        'mode = "ring" with 2 workers, no link, constant compute',
    ),
    Need(
        lambda one: one.mode == "async",
        lambda one: one.mode == "async" and one.workers == 1,
        "the coordinator's work between steps",
        'mode = "async" with 1 worker',
    ),
    Need(
        lambda one: one.mode in ("between-graph", "sync"),
        lambda one: one.mode in ("between-graph", "sync") and one.workers == 1,
        "a session's work between steps",
        'mode = "between-graph" with 1 worker',
    ),
    Need(
        lambda one: one.mode == "sync",
        lambda one: is_fitted(one) and one.mode == "sync",
        "what SyncReplicasOptimizer adds to a step",
        'mode = "sync" with 1 worker, constant compute',
    ),
    Need(
        lambda one: one.mode == "mirrored" and one.compute.kind == "emulated",
        lambda one: one.mode == "mirrored" and one.workers == 2 and one.compute.kind == "emulated",
        "what MirroredStrategy's replicas cost each other",
        'mode = "mirrored" with 2 workers, emulated compute',
    ),
    Need(
        lambda one: one.link is not None and one.link.sharing == "tcp" and one.servers > 0,
        shows_tcp,
        "how TCP shares a link",
        '2 workers, a server, a link with sharing = "tcp", emulated compute',
    ),
)
"""Each thing that predictions need and only certain runs of the fit determine."""


def times_compute(alone: TestbedSetting, setting: TestbedSetting) -> bool:
    """Whether a run with a single worker times the real compute of a setting."""
    same = (alone.model, alone.batch, alone.threads) == (setting.model, setting.batch, setting.threads)
    # a mirrored model is timed from outside, with the call of its function
    return alone.compute.kind == "real" and alone.workers == 1 and same and (alone.mode == "mirrored") == (setting.mode == "mirrored")


def _is_timed(setting: TestbedSetting, fit: Sequence[TestbedSetting]) -> bool:
    return any(times_compute(one, setting) or (one.mode == "apart" and computes_like(one, setting)) for one in fit)


def check_matrix(matrix: Matrix, pending: Sequence[TestbedSetting], folder: Path, *, python: str | None, timeout_s: float) -> None:
    """Refuse a matrix that cannot be measured, fitted and predicted whole on this machine.

    Parameters
    ----------
    matrix
        Whole.
    pending
        Those of its settings that are still to be measured.
    folder, python, timeout_s
        As for :func:`~calibrate.validation.running.measure_matrix`.

    Raises
    ------
    ScenarioError
        One line for each fault.
    """
    faults = faults_of(matrix, timeout_s)
    if pending:
        faults += faults_of_machine(pending, matrix.repeats, folder, python)
    if faults:
        raise ScenarioError(*faults)


def faults_of(matrix: Matrix, timeout_s: float = 600.0) -> list[str]:
    """What the matrix itself lacks or has wrong, a line each; nothing of the machine."""
    return [*_not_fitted(matrix), *_not_built(matrix.settings), *_too_long(matrix, timeout_s)]


def _not_fitted(matrix: Matrix) -> list[str]:
    held_out = [one.setting for one in matrix.held_out]
    found = []
    if not any(one.workers == 1 and one.servers for one in matrix.fit):
        found.append(f"{matrix.name}: fit: no setting has 1 worker and a server, without which nothing can be fitted; add one to [[fit]]")
    for need in NEEDS:
        concerned = [one for one in held_out if need.concerns(one)]
        if concerned and not any(need.given_by(one) for one in matrix.fit):
            found.append(f"{matrix.name}: held_out: {_listed(concerned)}: no run of the fit shows {need.what}; add to [[fit]]: {need.add}")
    lacking = [one for one in held_out if one.compute.kind == "real" and not _is_timed(one, matrix.fit)]
    for kind in dict.fromkeys((one.model, one.batch, one.threads, one.mode == "mirrored") for one in lacking):
        its = [one for one in lacking if (one.model, one.batch, one.threads, one.mode == "mirrored") == kind]
        mode = 'mode = "mirrored", ' if kind[3] else ""
        found.append(
            f"{matrix.name}: held_out: {_listed(its)}: no run of the fit times {its[0].model_name} with batch {kind[1]}; add to [[fit]]: "
            f'{mode}1 worker, model = "{its[0].model_name}", batch = {kind[1]}, threads = {kind[2]}, compute = {{ kind = "real" }}'
        )
    return found


def _not_built(settings: Sequence[TestbedSetting]) -> list[str]:
    found = []
    for model in dict.fromkeys(one.model for one in settings if one.compute.kind == "real"):
        try:
            builder_of(model)
        except InputError as error:
            found.append(str(error))
    return found


def _too_long(matrix: Matrix, timeout_s: float) -> list[str]:
    found = []
    for one in matrix.settings:
        lasts_s = one.steps * guessed_step_s(one)
        if lasts_s > timeout_s - _EACH_S:
            found.append(
                f"{one.label}: {one.steps:,} steps take about {lasts_s:,.0f} s, and --timeout is {timeout_s:g} s; give fewer steps"
            )
    return found


def _listed(settings: Sequence[TestbedSetting]) -> str:
    more = f" and {len(settings) - 1} more" if len(settings) > 1 else ""
    return f"{settings[0].label!r}{more}"
