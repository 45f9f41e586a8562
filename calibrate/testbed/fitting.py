"""From small testbed runs (1 worker, 2 where it must be, rings up to 5) to the machine's parameters.

What the clocks inside a step show directly is averaged; what only shows in how long steps
take as a whole is fitted by least squares with the simulator in the loop. Nothing of what
a prediction is later compared with takes part.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, least_squares

from calibrate.testbed.loopback import LoopbackWork
from calibrate.testbed.platform import MEANINGS, Parameter, Platform
from calibrate.testbed.readings import Readings
from calibrate.testbed.scenarios import scenario_of
from calibrate.testbed.setting import TestbedSetting
from calibrate.testbed.unexplained import fit_misfit, fit_noise, of_link
from simulator import simulate
from simulator.errors import CalibrationError
from simulator.replication import replicate

__all__ = ["PRIORS", "fit_platform", "is_fitted", "shows_tcp"]

Array = NDArray[np.float64]
Progress = Callable[[int, int, str], None]

PRIORS: dict[str, tuple[float, float, float]] = {
    "wire_bytes_per_byte": (1.046, 1.03, 1.07),
    "loopback_bytes_per_s": (2.5e9, 1.0e9, 6.0e9),
    "loopback_per_byte_s": (1.3e-9, 6.0e-10, 3.0e-9),
    "loopback_step_s": (4.0e-3, 1.5e-3, 8.0e-3),
    "loopback_async_step_s": (6.0e-3, 2.5e-3, 1.2e-2),
    "loopback_waited_share": (0.5, 0.25, 1.0),
    "loopback_ring_per_byte_s": (2.0e-9, 1.0e-9, 4.0e-9),
    "mirrored_per_byte_s": (3.0e-10, 1.0e-10, 1.0e-9),
    "tensor_s": (2.0e-5, 5.0e-6, 2.0e-4),
    "tensor_per_byte_s": (2.0e-10, 5.0e-11, 1.0e-9),
    "turn_s": (7.0e-4, 7.0e-5, 4.0e-3),
    "turn_per_byte_s": (1.5e-9, 4.0e-10, 6.0e-9),
    "ring_cpu_per_byte_s": (3.0e-9, 1.5e-9, 6.0e-9),
    "dispatch_s": (2.0e-3, 5.0e-4, 6.0e-3),
    "coordinator_s": (2.0e-3, 2.0e-4, 1.0e-2),
    "session_s": (1.5e-3, 2.0e-4, 1.0e-2),
    "accumulate_s": (1.0e-3, 1.0e-4, 1.0e-2),
    "ring_step_s": (1.2e-3, 2.0e-4, 1.0e-2),
    "mirrored_step_s": (1.5e-3, 5.0e-4, 4.0e-3),
    "server_s": (2.0e-5, 2.0e-6, 5.0e-4),
    "server_per_byte_s": (1.5e-10, 2.0e-11, 1.0e-9),
    "sleep_s": (4.0e-4, 5.0e-5, 2.0e-3),
    "queue_s": (5.0e-3, 1.0e-3, 2.5e-2),
    "weight_sigma": (0.2, 0.04, 1.0),
    "noise": (0.01, 0.002, 0.05),
    "loopback_noise": (0.03, 0.01, 0.1),
    "misfit": (0.01, 0.002, 0.05),
    "loopback_misfit": (0.05, 0.01, 0.2),
}
"""Where a parameter is put that no run determines: value, and the ends of its 90% interval (orders of magnitude seen on
CPU machines). In the least squares the interval weighs as one more, weak observation."""

_IN_THE_LOOP = ("wire_bytes_per_byte", "tensor_s", "tensor_per_byte_s", "server_per_byte_s", "turn_s", "turn_per_byte_s",
                "loopback_bytes_per_s", "loopback_waited_share", "accumulate_s")  # fmt: skip
_DRAWS = 60
_TRIED = {"queue_s": (1e-3, 2e-3, 3.5e-3, 5e-3, 7.5e-3, 1.2e-2), "weight_sigma": (0.05, 0.1, 0.2, 0.4)}
_TCP_RUNS = 6
_TCP_ERROR = 0.05
"""Relative, with which a simulated rate stands for a measured one where TCP decides."""
_UNLIKELY = 1e-6
_Z90 = 1.6449
_SOCKETS_ERROR = 0.003
"""Relative, of the bytes on the wire for each byte as plain sockets show them."""
_LEAST_RELATIVE_ERROR = 0.002
"""Of a measured mean, however close its repeats are to each other."""
_SHRINKING = 3
"""Degrees of freedom with which the scatter of all repeats counts in that of one setting's."""
_LARGEST_RING = 5
"""Workers of a ring that takes part in the fit."""
_FEWEST_OF_A_KIND = 4
_NORMAL_MEDIAN = 1.4826
"""Standard deviation of a normal distribution over the median of its absolute deviations."""
_FAR = 3.0
_PULLS = 0.1
"""Share of the largest pull on a parameter from which on a setting that is far off is named with it."""


def fit_platform(readings: Sequence[Readings], name: str, cores: float, *, seed: int = 0, progress: Progress | None = None) -> Platform:
    """Fit every parameter that the runs determine; the others keep their priors, and say so.

    Parameters
    ----------
    readings
        Emulated runs with a constant law: 1 worker in the modes with servers, 2 to 5 in a ring
        (2 alone tell less of larger ones); several sizes, one over loopback. Two workers with ``sharing = "tcp"``, where
        predictions for that are wanted.
    name
        Of the platform.
    cores
        Of the machine.
    seed
        Of the joint draws.

    Raises
    ------
    CalibrationError
        There is no run with a single worker and servers, without which nothing can be said.
    """
    alone = [one for one in readings if one.setting.workers == 1 and one.setting.servers]
    if not alone:
        raise CalibrationError("no run has one worker and a server; measure one, such as `paceline testbed run --mode async --workers 1`")
    found: dict[str, Parameter] = {key: _prior(key) for key in MEANINGS}
    _directly(readings, found, cores)
    served = [one for one in readings if one.setting.link is None and one.setting.servers and is_fitted(one.setting)]
    over_loopback = LoopbackWork(PRIORS).fit(served)
    found |= over_loopback.found_
    draws, left = _in_the_loop(readings, found, cores, seed, progress)
    joint = over_loopback.draws(len(draws), np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))))
    queues = _where_tcp_decides(readings, found, cores, seed) or [{}] * len(draws)
    _unexplained([one for one in readings if is_fitted(one.setting)], left, found, cores)
    files = [file.path.name for one in readings for file in one.files]
    return Platform(
        name=name,
        cores=cores,
        parameters=found,
        draws=tuple({**draw, **together, **queue} for draw, together, queue in zip(draws, joint, queues, strict=True)),
        provenance={
            "measurements": " ".join(files),
            "measurements_sha256": " ".join(file.sha256 for one in readings for file in one.files),
            "fitted_settings": [one.setting.label for one in readings],
        },
    )


def _prior(name: str) -> Parameter:
    value, low, high = PRIORS[name]
    return Parameter(value=value, low=low, high=high, determined=False, why="no run determines it: the prior stands")


# -- what the clocks show ------------------------------------------------------------


def _directly(readings: Sequence[Readings], found: dict[str, Parameter], cores: float) -> None:
    shaped = [one for one in readings if one.setting.link is None or one.setting.link.sharing == "fair"]
    emulated = [one for one in shaped if one.setting.compute.kind == "emulated" and not one.setting.overlap]
    asked = [
        float(np.mean(run.parts()["compute"])) - one.setting.compute.mean_s
        for one in emulated
        if one.setting.compute.law.kind == "constant"
        for run in one.runs
    ]
    _put(found, "sleep_s", asked, "compute as timed less what was asked for, in runs with a constant law")
    coordinated = [run for one in shaped if one.setting.mode == "async" and one.setting.workers == 1 for run in one.runs]
    _put(found, "dispatch_s", [run.cpu_s("chief") / len(run.steps) for run in coordinated], "CPU time of the coordinator a step, 1 worker")
    gaps = [float(np.mean(run.parts()["gap"])) - run.cpu_s("chief") / len(run.steps) for run in coordinated]
    _put(found, "coordinator_s", gaps, "from a step's end to the next one's begin with 1 worker, less the coordinator's CPU time")
    for key, modes, workers in (
        ("session_s", ("between-graph", "sync"), 1),
        ("ring_step_s", ("ring",), _LARGEST_RING),
        ("mirrored_step_s", ("mirrored",), 2),
    ):
        values = [
            float(np.mean(run.parts()["gap"]))
            for one in shaped
            # real replicas of one process are timed as a whole, with this in it
            if one.setting.mode in modes
            and one.setting.workers <= workers
            and (one.setting.compute.kind == "emulated" or one.setting.mode != "mirrored")
            for run in one.runs
        ]
        _put(found, key, values, f"from a step's end to the next one's begin, {f'up to {workers} workers' if workers > 1 else '1 worker'}")

    rings = [one for one in emulated if one.setting.link is None and one.setting.mode == "ring" and is_fitted(one.setting)]
    each = [
        # the call of the step's function is work as well
        (run.cpu_s("worker") / len(run.steps) - float(np.mean(run.parts()["gap"]))) / one.setting.moved_bytes
        for one in rings
        for run in one.runs
    ]
    _put(found, "loopback_ring_per_byte_s", each, "CPU time of a rank's step over loopback, the call of its function apart")
    reduced = [
        float(np.mean(run.parts()["push"])) / (2.0 * (one.setting.workers - 1) / one.setting.workers * one.setting.moved_bytes)
        for one in emulated
        # with a core each; more replicas wait for one another's
        if one.setting.mode == "mirrored" and 1 < one.setting.workers <= cores and one.files[0].fingerprint.device_kind == "CPU"
        for run in one.runs
    ]
    _put(found, "mirrored_per_byte_s", reduced, "all-reduce of MirroredStrategy's replicas, no more than there are cores")
    _put(found, "ring_cpu_per_byte_s", _ring_cpu_per_byte(emulated), "how a worker's CPU time grows with the bytes it sends, rings")


def _ring_cpu_per_byte(emulated: Sequence[Readings]) -> list[float]:
    """CPU seconds for each byte that a ring sends over shaped links: of each run, beyond what a step takes whatever its bytes."""
    points = [
        (2.0 * (workers - 1) / workers * one.setting.parameter_bytes, run.cpu_s("worker") / len(run.steps))
        for one in emulated
        if one.setting.mode == "ring" and one.setting.link is not None and is_fitted(one.setting)
        for workers in (one.setting.workers,)
        for run in one.runs
    ]
    if len({sent for sent, _ in points}) < 2:  # one size does not tell what a step takes besides
        return [cpu_s / sent for sent, cpu_s in points]
    sent, cpu_s = np.transpose(points)
    line = np.polynomial.Polynomial.fit(sent, cpu_s, 1, w=1.0 / sent).convert()  # errors in proportion
    return [float(each) for each in (cpu_s - line.coef[0]) / sent]


def _put(found: dict[str, Parameter], name: str, values: Sequence[float], why: str) -> None:
    """The mean of what several runs show, and where the mean of a further run is to be expected."""
    if not values:
        return
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.3 * abs(mean)
    found[name] = Parameter(
        value=max(mean, 0.0),
        low=max(mean - _Z90 * deviation, 0.0),
        high=max(mean + _Z90 * deviation, 0.0),
        why=f"{why} ({len(values)} runs)",
    )


# -- least squares with the simulator in the loop --------------------------------------


def _in_the_loop(
    readings: Sequence[Readings], found: dict[str, Parameter], cores: float, seed: int, progress: Progress | None
) -> tuple[list[dict[str, float]], Array]:
    """Fit what shows in the length of whole steps.

    Returns
    -------
    draws
        Joint draws of all parameters.
    left
        What the fit leaves of each fitted setting's deviation (column) in each residual (row).
    """
    used = [one for one in readings if is_fitted(one.setting)]
    names = [name for name in _IN_THE_LOOP if _concerned(name, used)]
    centers = np.array([math.log(PRIORS[name][0]) for name in names])
    widths = np.array([math.log(PRIORS[name][2] / PRIORS[name][1]) / (2 * _Z90) for name in names])
    measured = np.array([math.log(1.0 / statistics.fmean(one.updates_per_s)) for one in used])
    # plain sockets show what headers cost; TensorFlow adds its own, a fraction of a percent
    sockets = [one.setting.link.bandwidth_bytes_per_s / rate for one in used if one.setting.link for rate in one.link_bytes_per_s]
    if sockets and "wire_bytes_per_byte" in names:
        index = names.index("wire_bytes_per_byte")
        centers[index], widths[index] = math.log(statistics.median(sockets)), _SOCKETS_ERROR
    fixed = {name: parameter.value for name, parameter in found.items()}

    def residuals(logs: Array, errors: Array) -> Array:
        values = fixed | dict(zip(names, np.exp(logs).tolist(), strict=True))
        values["wire_bytes_per_byte"] = max(values["wire_bytes_per_byte"], 1.0)
        # two replications are the fewest; without jitter they are alike
        predicted = [math.log(_step_s(one, values, cores)) for one in used]
        return np.concatenate([(np.array(predicted) - measured) / errors, (logs - centers) / widths])

    if progress is not None:
        progress(0, 1, "fitting")
    solved, errors, far = _robustly(residuals, used, centers, widths)
    covariance = np.linalg.inv(solved.jac.T @ solved.jac)
    deviations = np.sqrt(np.diag(covariance))
    pulls = solved.jac[: len(used)]
    left = np.eye(len(used)) - pulls @ covariance @ pulls.T * errors[:, None] / errors
    for index, name in enumerate(names):
        value = math.exp(solved.x[index])
        # the data have narrowed it to less than half of what the prior allows
        determined = bool(deviations[index] < 0.5 * widths[index]) or (name == "wire_bytes_per_byte" and bool(sockets))
        pull = np.abs(pulls[:, index])
        runs = ", ".join(used[run].setting.label for run in np.argsort(-pull)[:2] if pull[run] > 0)
        why = f"least squares over {len(used)} settings; most by {runs}" if determined else f"hardly determined by {runs}; near its prior"
        named = ", ".join(used[run].setting.label for run in far if pull[run] > _PULLS * pull.max())
        found[name] = Parameter(
            value=value,
            low=value * math.exp(-_Z90 * deviations[index]),
            high=value * math.exp(_Z90 * deviations[index]),
            determined=determined,
            why=why + (f"; counted less, being far off: {named}" if named else ""),
        )
    if progress is not None:
        progress(1, 1, "fitting")
    rng = np.random.default_rng(seed)
    logs = rng.multivariate_normal(solved.x, covariance, size=_DRAWS)
    direct = [name for name in found if name not in names and found[name].determined]
    draws = [
        {name: float(f"{math.exp(value):.7g}") for name, value in zip(names, row.tolist(), strict=True)}
        | {name: _drawn(found[name], rng) for name in direct}
        for row in logs
    ]
    return draws, left


def _robustly(
    residuals: Callable[[Array, Array], Array], used: Sequence[Readings], start: Array, widths: Array
) -> tuple[OptimizeResult, Array, list[int]]:
    """Least squares in which no setting decides alone, and that says how far settings of a kind are off.

    First with the noise of repeats as the errors and a soft-L1 loss. Where the settings of a
    kind are then off by more than their noise, their errors grow to what they are off by
    (median, as a standard deviation), so that what they determine gets a wider interval;
    again with a soft-L1 loss. Last, each setting's error grows by the weight that this loss
    gave it, and plain least squares follow, for a covariance that says the same.

    Returns
    -------
    solved
        Of the last pass.
    errors
        Of each setting's logarithm, as in the last pass.
    far
        Settings that are off by more than three of their kind's errors.
    """
    options = {"x_scale": widths, "diff_step": 1e-3}
    kinds = np.array([f"{one.setting.mode == 'ring'} {one.setting.link is not None}" for one in used])
    errors = _noise_of(used)
    x = least_squares(residuals, start, loss="soft_l1", args=(errors,), **options).x
    off = np.abs(residuals(x, errors)[: len(used)])
    for kind in set(kinds.tolist()):
        if (kinds == kind).sum() >= _FEWEST_OF_A_KIND:
            errors[kinds == kind] *= max(_NORMAL_MEDIAN * float(np.median(off[kinds == kind])), 1.0)
    x = least_squares(residuals, x, loss="soft_l1", args=(errors,), **options).x
    off = np.abs(residuals(x, errors)[: len(used)])
    errors *= (1.0 + off**2) ** 0.25
    return least_squares(residuals, x, args=(errors,), **options), errors, np.flatnonzero(off > _FAR).tolist()


def _noise_of(used: Sequence[Readings]) -> Array:
    """Relative error of each setting's mean: scatter of its own repeats, which are few, drawn to that of all."""
    squares = np.array([np.sum((np.log(one.updates_per_s) - np.mean(np.log(one.updates_per_s))) ** 2) for one in used])
    freedom = np.array([len(one.runs) - 1 for one in used])
    pooled = squares.sum() / max(freedom.sum(), 1)
    variances = (squares + _SHRINKING * pooled) / (freedom + _SHRINKING)
    means: Array = np.sqrt(variances / (freedom + 1))
    return np.maximum(means, _LEAST_RELATIVE_ERROR)


def _drawn(parameter: Parameter, rng: np.random.Generator) -> float:
    sigma = (parameter.high - parameter.low) / (2 * _Z90)
    return float(f"{max(rng.normal(parameter.value, sigma), 0.0):.7g}")


def is_fitted(setting: TestbedSetting) -> bool:
    """Whether a run of a setting takes part in the least squares: few workers, no randomness of its own, no link that TCP shares."""
    small = setting.workers == 1 or (setting.mode == "ring" and setting.workers <= _LARGEST_RING)
    plain = setting.compute.kind == "emulated" and setting.compute.law.kind == "constant" and not setting.overlap
    return small and plain and setting.mode != "mirrored" and (setting.link is None or setting.link.sharing == "fair")


def _concerned(name: str, used: Iterable[Readings]) -> bool:
    """Whether a parameter plays a part in any of the runs."""
    return any(
        {
            "wire_bytes_per_byte": one.setting.link is not None,
            "loopback_bytes_per_s": one.setting.link is None,
            "loopback_waited_share": one.setting.link is None and one.setting.servers > 0,
            "accumulate_s": one.setting.mode == "sync",
        }.get(name, (one.setting.servers == 0) == name.startswith("turn"))
        for one in used
    )


def _step_s(one: Readings, values: dict[str, float], cores: float, replications: int = 2) -> float:
    """Seconds an update as simulated."""
    # with constant compute the steps of a ring are alike
    setting = one.setting.model_copy(update={"steps": 2}) if one.setting.mode == "ring" else one.setting
    return 1.0 / simulate(scenario_of(setting, values, cores, replications=replications)).updates_per_s.mean


# -- what is left ----------------------------------------------------------------------


def shows_tcp(setting: TestbedSetting) -> bool:
    """Whether a run of a setting shows how TCP shares a link: two workers whose transfers meet."""
    shared = setting.link is not None and setting.link.sharing == "tcp" and setting.workers == 2
    return shared and setting.compute.kind == "emulated" and not setting.overlap


def _where_tcp_decides(readings: Sequence[Readings], found: dict[str, Parameter], cores: float, seed: int) -> list[dict[str, float]]:
    """How much a transfer keeps waiting in its sender's queue, and the spread of weights: from 2 workers whose transfers meet.

    Both move the workers' phases, which change seldom, so that a rate can have two values
    for the same numbers. So the whole range is tried, and every pair counts by how well it
    describes the runs (its likelihood with normal errors, times the prior): the draws of
    the two hold phases that meet and phases that do not, where the runs do not tell which.

    Returns
    -------
    draws
        Of both numbers together; none without such runs.
    """
    tcp = [one for one in readings if shows_tcp(one.setting)]
    if not tcp:
        return []
    values = {name: parameter.value for name, parameter in found.items()}
    names = ("queue_s", "weight_sigma")
    pairs = np.array([(queue_s, sigma) for queue_s in _TRIED["queue_s"] for sigma in _TRIED["weight_sigma"]])
    logs = np.zeros(len(pairs))
    for one in tcp:
        measured = np.log(one.updates_per_s)
        for number, pair in enumerate(pairs):
            scenario = scenario_of(one.setting, values | dict(zip(names, pair.tolist(), strict=True)), cores, replications=_TCP_RUNS)
            rates = [run.updates / run.window_s for run in (replicate(scenario, each) for each in range(_TCP_RUNS))]
            # a run could have had the rate of any of the simulated ones
            apart = (measured[:, None] - np.log(rates)) / _TCP_ERROR
            logs[number] += float(np.log(np.exp(-0.5 * apart**2).mean(axis=1) + _UNLIKELY).mean())
    for column, name in enumerate(names):
        value, low, high = PRIORS[name]
        logs -= 0.5 * (np.log(pairs[:, column] / value) / (math.log(high / low) / (2 * _Z90))) ** 2
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    for column, name in enumerate(names):
        tried = pairs[:, column]
        mean = float(chances @ np.log(tried))
        deviation = math.sqrt(float(chances @ (np.log(tried) - mean) ** 2))
        order = np.argsort(tried)
        below = np.cumsum(chances[order])
        low, high = (float(tried[order][np.searchsorted(below, share).clip(0, len(tried) - 1)]) for share in (0.05, 0.95))
        found[name] = Parameter(
            value=min(max(math.exp(mean), low), high),
            low=low,
            high=high,
            determined=deviation < 0.5 * math.log(PRIORS[name][2] / PRIORS[name][1]) / (2 * _Z90),
            why=f"throughput of 2 workers whose transfers meet, sharing = tcp ({len(tcp)} settings); pairs of both by how likely they are",
        )
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    chosen = pairs[rng.choice(len(pairs), size=_DRAWS, p=chances)]
    return [dict(zip(names, pair, strict=True)) for pair in chosen.tolist()]


def _unexplained(used: Sequence[Readings], left: Array, found: dict[str, Parameter], cores: float) -> None:
    """Noise of repeats of runs without randomness of their own, and how far the fit stays from their means beyond it."""
    values = {key: parameter.value for key, parameter in found.items()}
    for shaped in (True, False):
        places = [place for place, one in enumerate(used) if (one.setting.link is not None) == shaped]
        if not places:
            continue
        its = [used[place] for place in places]
        key = of_link(its[0].setting, "noise")
        found[key] = fit_noise([one.updates_per_s for one in its]) or found[key]
        # of the mean of its repeats; the other kind of link's settings leave next to nothing here
        noise = np.array([found[key].value / math.sqrt(len(one.runs)) for one in used])
        misses = np.array([-math.log(_step_s(one, values, cores) * statistics.fmean(one.updates_per_s)) for one in its])
        key = of_link(its[0].setting, "misfit")
        found[key] = fit_misfit(misses, left[places], noise, [one.setting.label for one in its]) or found[key]
