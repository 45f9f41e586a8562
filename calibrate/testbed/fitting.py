"""Fits the machine's parameters to small testbed runs: 1 worker, 2 where it must be, rings up to 5.

Times measured directly inside a step are averaged (clocks.py); what only shows in how long steps
take as a whole is fitted by least squares with the simulator in the loop. Nothing of what
a prediction is later compared with takes part. The parameters are named in platform.py and used in scenarios.py.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, brentq, least_squares
from scipy.stats import chi2, norm, t

from calibrate.measurements import Z90
from calibrate.probing import Progress
from calibrate.testbed.clocks import is_fitted, timed_directly, work_of_cores
from calibrate.testbed.platform import MEANINGS, PRIORS, Parameter, Platform, log_width
from calibrate.testbed.readings import Readings
from calibrate.testbed.scenarios import NO_JOBS, scenario_of
from calibrate.testbed.setting import TestbedSetting
from simulator.base.errors import CalibrationError, InputError
from simulator.base.text import digits, format_change
from simulator.engine.replication import replicate
from simulator.resolve.resolve import resolve

Array = NDArray[np.float64]

_IN_THE_LOOP = ("wire_bytes_per_byte", "tensor_s", "tensor_per_byte_s", "server_per_byte_s", "turn_s", "turn_per_byte_s",
                "loopback_bytes_per_s", "loopback_waited_share", "accumulate_s", "layer_sleep_s")  # fmt: skip
_DRAWS = 60
_SOCKETS_ERROR = 0.003
"""Relative, of the bytes on the wire for each byte as plain sockets show them."""
_LEAST_RELATIVE_ERROR = 0.002
"""Relative error of a measured mean, however close its repeats are to each other."""
_SHRINKING = 3
"""Degrees of freedom with which the scatter of all repeats counts in that of one setting's."""
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
        Name of the platform.
    cores
        Cores of the machine.
    seed
        Seed of the joint draws.

    Raises
    ------
    CalibrationError
        There is no run with a single worker and servers, without which nothing can be said.
    InputError
        A run had checkpoints or faults.
    """
    if any(reading.setting.is_job for reading in readings):
        raise InputError(f"{NO_JOBS}; fit runs without them")
    if not any(reading.setting.workers == 1 and reading.setting.servers for reading in readings):
        raise CalibrationError("no run has one worker and a server: measure one, such as `paceline testbed run --set workers=1`")
    parameters: dict[str, Parameter] = {key: Parameter.prior(key) for key in MEANINGS}
    parameters |= timed_directly(readings, cores)
    served = [reading for reading in readings if reading.setting.servers and is_fitted(reading.setting)]
    of_cores, joint = work_of_cores(served, _DRAWS, np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))))
    parameters |= of_cores
    simulated = _Simulated(cores)
    draws, left = _in_the_loop(readings, parameters, simulated, seed, progress)
    shared, queues = fit_tcp_sharing(readings, parameters, cores, seed=seed)
    parameters |= shared
    _unexplained([reading for reading in readings if is_fitted(reading.setting)], left, parameters, simulated)
    return Platform(
        name=name,
        cores=cores,
        parameters=parameters,
        draws=tuple({**draw, **together, **queue} for draw, together, queue in zip(draws, joint, queues, strict=True)),
        provenance={
            "measurements": " ".join(reading.file.path.name for reading in readings),
            "measurements_sha256": " ".join(reading.file.sha256 for reading in readings),
            "fitted_settings": [reading.setting.label for reading in readings],
        },
    )


# -- least squares with the simulator in the loop --------------------------------------


def _in_the_loop(
    readings: Sequence[Readings], parameters: dict[str, Parameter], simulated: _Simulated, seed: int, progress: Progress | None
) -> tuple[list[dict[str, float]], Array]:
    """Fit what shows in the length of whole steps.

    Returns
    -------
    draws
        Joint draws of all parameters.
    left
        What the fit leaves of each fitted setting's deviation (column) in each residual (row).
    """
    used = [reading for reading in readings if is_fitted(reading.setting)]
    names = [name for name in _IN_THE_LOOP if _concerned(name, used)]
    centers = np.array([math.log(PRIORS[name][0]) for name in names])
    widths = np.array([log_width(name) for name in names])
    measured = np.array([math.log(1.0 / statistics.fmean(reading.updates_per_s)) for reading in used])
    # plain sockets show what headers cost; TensorFlow adds its own, a fraction of a percent
    sockets = [
        reading.setting.link.bandwidth_bytes_per_s / rate for reading in used if reading.setting.link for rate in reading.link_bytes_per_s
    ]
    if sockets and "wire_bytes_per_byte" in names:
        index = names.index("wire_bytes_per_byte")
        centers[index], widths[index] = math.log(statistics.median(sockets)), _SOCKETS_ERROR
    fixed = {name: parameter.value for name, parameter in parameters.items()}

    def residuals(logs: Array, errors: Array) -> Array:
        values = fixed | dict(zip(names, np.exp(logs).tolist(), strict=True))
        values["wire_bytes_per_byte"] = max(values["wire_bytes_per_byte"], 1.0)
        predicted = [math.log(simulated.step_s(reading, values)) for reading in used]
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
        parameters[name] = Parameter(
            value=value,
            low=value * math.exp(-Z90 * deviations[index]),
            high=value * math.exp(Z90 * deviations[index]),
            determined=determined,
            why=why + (f"; outliers with less weight: {named}" if named else ""),
        )
    if progress is not None:
        progress(1, 1, "fitting")
    rng = np.random.default_rng(seed)
    logs = rng.multivariate_normal(solved.x, covariance, size=_DRAWS)
    direct = [name for name in parameters if name not in names and parameters[name].determined]
    draws = [
        {name: digits(math.exp(value)) for name, value in zip(names, row.tolist(), strict=True)}
        | {name: _drawn(parameters[name], rng) for name in direct}
        for row in logs
    ]
    return draws, left


def _robustly(
    residuals: Callable[[Array, Array], Array], used: Sequence[Readings], start: Array, widths: Array
) -> tuple[OptimizeResult, Array, list[int]]:
    """Robust least squares, which also estimates the deviations of settings of a kind.

    First with the noise of repeats as the errors and a soft-L1 loss. Where the settings of a
    kind then deviate by more than their noise, their errors grow to these deviations
    (median, as a standard deviation), so that what they determine gets a wider interval;
    again with a soft-L1 loss. Last, each setting's error grows by the weight that this loss
    gave it, and plain least squares follow, for a covariance that says the same.

    Returns
    -------
    solved
        The solution of the last pass.
    errors
        Errors of each setting's logarithm, as in the last pass.
    far
        Settings that deviate by more than three of their kind's errors.
    """
    options = {"x_scale": widths, "diff_step": 1e-3}
    kinds = np.array([f"{reading.setting.mode == 'ring'} {reading.setting.link is not None}" for reading in used])
    errors = _noise_of(used)
    x = least_squares(residuals, start, loss="soft_l1", args=(errors,), **options).x
    deviations = np.abs(residuals(x, errors)[: len(used)])
    for kind in set(kinds.tolist()):
        if (kinds == kind).sum() >= _FEWEST_OF_A_KIND:
            errors[kinds == kind] *= max(_NORMAL_MEDIAN * float(np.median(deviations[kinds == kind])), 1.0)
    x = least_squares(residuals, x, loss="soft_l1", args=(errors,), **options).x
    deviations = np.abs(residuals(x, errors)[: len(used)])
    errors *= (1.0 + deviations**2) ** 0.25
    return least_squares(residuals, x, args=(errors,), **options), errors, np.flatnonzero(deviations > _FAR).tolist()


def _noise_of(used: Sequence[Readings]) -> Array:
    """Relative error of each setting's mean: scatter of its own repeats, which are few, drawn to that of all."""
    squares = np.array([np.sum((np.log(reading.updates_per_s) - np.mean(np.log(reading.updates_per_s))) ** 2) for reading in used])
    freedom = np.array([len(reading.runs) - 1 for reading in used])
    pooled = squares.sum() / max(freedom.sum(), 1)
    variances = (squares + _SHRINKING * pooled) / (freedom + _SHRINKING)
    means: Array = np.sqrt(variances / (freedom + 1))
    return np.maximum(means, _LEAST_RELATIVE_ERROR)


def _drawn(parameter: Parameter, rng: np.random.Generator) -> float:
    sigma = (parameter.high - parameter.low) / (2 * Z90)
    return digits(max(rng.normal(parameter.value, sigma), 0.0))


def _concerned(name: str, used: Iterable[Readings]) -> bool:
    """Tell whether a parameter plays a part in any of the runs."""
    return any(
        {
            "wire_bytes_per_byte": reading.setting.link is not None,
            "loopback_bytes_per_s": reading.setting.link is None,
            "loopback_waited_share": reading.setting.link is None and reading.setting.servers > 0,
            "accumulate_s": reading.setting.mode == "sync",
            "layer_sleep_s": reading.setting.overlap,
        }.get(name, (reading.setting.servers == 0) == name.startswith("turn"))
        for reading in used
    )


class _Simulated:
    """Simulated times of settings; each scenario once, since most parameters leave most settings as they were."""

    def __init__(self, cores: float) -> None:
        self._cores = cores
        self._known: dict[str, float] = {}

    def step_s(self, reading: Readings, values: dict[str, float]) -> float:
        """Seconds per update."""
        # with constant compute the steps of a ring are alike
        setting = reading.setting.model_copy(update={"steps": 2}) if reading.setting.mode == "ring" else reading.setting
        # two replications are the fewest; without jitter they are alike, so that one says it all
        scenario = scenario_of(setting, values, self._cores, replications=2)
        if scenario.hash not in self._known:
            run = replicate(resolve(scenario), 0)
            self._known[scenario.hash] = run.window_s / run.updates
        return self._known[scenario.hash]


# -- what is left ----------------------------------------------------------------------


def _unexplained(used: Sequence[Readings], left: Array, parameters: dict[str, Parameter], simulated: _Simulated) -> None:
    """Noise of repeats of runs without randomness of their own, and how far the fit stays from their means beyond it."""
    values = {key: parameter.value for key, parameter in parameters.items()}
    for shaped in (True, False):
        places = [place for place, reading in enumerate(used) if (reading.setting.link is not None) == shaped]
        if not places:
            continue
        some = [used[place] for place in places]
        key = of_link(some[0].setting, "noise")
        parameters[key] = fit_noise([reading.updates_per_s for reading in some]) or parameters[key]
        # of the mean of its repeats; the other kind of link's settings leave next to nothing here
        noise = np.array([parameters[key].value / math.sqrt(len(reading.runs)) for reading in used])
        misses = np.array([-math.log(simulated.step_s(reading, values) * statistics.fmean(reading.updates_per_s)) for reading in some])
        key = of_link(some[0].setting, "misfit")
        parameters[key] = fit_misfit(misses, left[places], noise, [reading.setting.label for reading in some]) or parameters[key]


# -- how TCP shares a link ---------------------------------------------------------------------

_TRIED = {"queue_s": (5e-4, 1e-3, 2e-3, 3.5e-3, 5e-3, 7.5e-3), "weight_sigma": (0.15, 0.3, 0.5, 0.8)}
_RUNS = 6
_ERROR = 0.05
"""Relative, with which a simulated rate stands for a measured one."""
_UNLIKELY = 1e-6


def shows_tcp(setting: TestbedSetting) -> bool:
    """Tell whether a run of a setting shows how TCP shares a link: two workers whose transfers meet."""
    shared = setting.link is not None and setting.link.sharing == "tcp" and setting.workers == 2
    return shared and setting.compute.kind == "emulated" and not setting.overlap


def fit_tcp_sharing(
    readings: Sequence[Readings], others: Mapping[str, Parameter], cores: float, *, seed: int
) -> tuple[dict[str, Parameter], list[dict[str, float]]]:
    """How long a transfer keeps waiting in its sender's queue, and the spread of weights: from 2 workers whose transfers meet.

    The spread is that of a connection which has room for one packet in the buffer; that of a
    setting follows from its own room (:func:`calibrate.testbed.scenarios.scenario_of`).

    Both move the workers' phases, which change seldom, so that a rate can have two values
    for the same numbers. So the whole range is tried, and every pair counts by how well it
    describes the runs (its likelihood with normal errors, times the prior): the draws of
    the two hold phases that meet and phases that do not, where the runs do not tell which.

    Parameters
    ----------
    readings
        Runs of all kinds; those that :func:`shows_tcp` names are used.
    others
        All other parameters.
    cores
        Cores of the machine.
    seed
        Seed of the draws.

    Returns
    -------
    parameters
        The two; none without such runs.
    draws
        Draws of the two together; empty ones without such runs.
    """
    runs = [reading for reading in readings if shows_tcp(reading.setting)]
    if not runs:
        return {}, [{}] * _DRAWS
    values = {name: parameter.value for name, parameter in others.items()}
    pairs = np.array(list(itertools.product(*_TRIED.values())))
    logs = np.zeros(len(pairs))
    for reading in runs:
        measured = np.log(reading.updates_per_s)
        for number, pair in enumerate(pairs):
            tried = values | dict(zip(_TRIED, pair.tolist(), strict=True))
            scenario = resolve(scenario_of(reading.setting, tried, cores, replications=_RUNS))
            rates = [run.updates / run.window_s for run in (replicate(scenario, each) for each in range(_RUNS))]
            # a run could have had the rate of any of the simulated ones
            relative_errors = (measured[:, None] - np.log(rates)) / _ERROR
            logs[number] += float(np.log(np.exp(-0.5 * relative_errors**2).mean(axis=1) + _UNLIKELY).mean())
    for column, name in enumerate(_TRIED):
        logs -= 0.5 * (np.log(pairs[:, column] / PRIORS[name][0]) / log_width(name)) ** 2
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    parameters = {name: _weighted(name, pairs[:, column], chances, len(runs)) for column, name in enumerate(_TRIED)}
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    chosen = pairs[rng.choice(len(pairs), size=_DRAWS, p=chances)]
    return parameters, [dict(zip(_TRIED, pair, strict=True)) for pair in chosen.tolist()]


def _weighted(name: str, tried: Array, chances: Array, settings: int) -> Parameter:
    """A parameter from the values that were tried, and how likely each is."""
    mean = float(chances @ np.log(tried))
    deviation = math.sqrt(float(chances @ (np.log(tried) - mean) ** 2))
    order = np.argsort(tried)
    below = np.cumsum(chances[order])
    low, high = (float(tried[order][np.searchsorted(below, share).clip(0, len(tried) - 1)]) for share in (0.05, 0.95))
    return Parameter(
        value=min(max(math.exp(mean), low), high),
        low=low,
        high=high,
        determined=deviation < 0.5 * log_width(name),
        why=f"throughput of 2 workers with overlapping transfers, sharing = tcp ({settings} settings); pairs of both weighted by "
        "likelihood",
    )


_FEWEST_FREEDOM = 3
"""Degrees of freedom below which repeats say too little of their noise."""
_FEWEST_SETTINGS = 2
_LEAST_LEFT = 0.1
"""Share of a setting's miss; where the fit leaves less in its residual, the residual tells nothing."""
_CAP = 1.5
"""Standard deviations that one setting counts at most with (Huber's usual choice)."""
_OUTLYING = 3.0
"""Standard deviations from which on a setting is named."""


def of_link(setting: TestbedSetting, name: str) -> str:
    """The parameter ``noise`` or ``misfit`` that a setting has: over loopback the cores are the limit, and both are others."""
    return name if setting.link is not None else f"loopback_{name}"


def fit_noise(rates: Sequence[Sequence[float]]) -> Parameter | None:
    """Standard deviation of the logarithm of a run's rate among repeats of the same setting, pooled over settings.

    Parameters
    ----------
    rates
        Updates/s of each repeat, setting by setting.

    Returns
    -------
    Parameter or None
        With its degrees of freedom, and the interval that a chi-squared sum of squares
        gives; None where there are fewer than three degrees of freedom.
    """
    logs = [np.log(each) for each in rates]
    freedom = sum(len(each) - 1 for each in logs)
    if freedom < _FEWEST_FREEDOM:
        return None
    squares = math.fsum(float(((each - each.mean()) ** 2).sum()) for each in logs)
    low, high = (math.sqrt(squares / chi2.ppf(share, freedom)) for share in (0.95, 0.05))
    return Parameter(
        value=math.sqrt(squares / freedom),
        low=low,
        high=high,
        freedom=freedom,
        why=f"scatter of repeats around the mean of their setting: {sum(map(len, logs))} repeats of {len(logs)} settings",
    )


def fit_misfit(misses: Array, left: Array, noise: Array, labels: Sequence[str]) -> Parameter | None:
    """Standard deviation of the errors of settings as a whole, beyond the noise in their means.

    Solves ``sum of min(r_i^2 / v_i, c^2) = n b`` for ``tau``, where ``r_i`` is the miss of a
    setting's mean, ``v_i = sum over j of M_ij^2 (tau^2 + e_j^2)`` its variance, ``e_j`` the
    noise in the mean of setting j, and ``M`` what the fit leaves of each setting's deviation
    in each residual (1 less the leverages on its diagonal). ``b`` is the mean of
    ``min(z^2, c^2)`` of a normal ``z``. Without the cap ``c`` it is the estimator of Paule and
    Mandel ("Consensus values and weighting factors", J. Res. NBS 87, 1982); the cap is that
    of Huber's proposal 2 ("Robust estimation of a location parameter", Ann. Math. Stat. 35,
    1964): a single setting that is far off does not set it for all.

    Parameters
    ----------
    misses
        Logarithm of predicted over measured mean of each setting; shape (n,).
    left
        The matrix M, rows of these settings, columns of all that were fitted; shape (n, m).
    noise
        Standard deviation of the measured mean of all that were fitted, relative; shape (m,).
    labels
        Labels of the settings, to name those that are far off.

    Returns
    -------
    Parameter or None
        None where fewer than two settings have a residual that tells anything.
    """
    shares = (left**2).sum(axis=1)
    informative = np.flatnonzero(shares >= _LEAST_LEFT)
    if len(informative) < _FEWEST_SETTINGS:
        return None
    squares, shares, noise_squares = misses[informative] ** 2, shares[informative], (left[informative] ** 2) @ noise**2
    cap_square = _CAP**2
    expected = len(informative) * float(chi2.cdf(cap_square, 3) + cap_square * chi2.sf(cap_square, 1))

    def excess(tau: float) -> float:
        variances = shares * tau**2 + noise_squares
        ratios = np.divide(squares, variances, out=np.where(squares > 0, np.inf, 0.0), where=variances > 0)
        return float(np.minimum(ratios, cap_square).sum()) - expected

    highest = 10.0 * math.sqrt(float((squares / shares).max())) + 1e-12
    tau = float(brentq(excess, 0.0, highest)) if excess(0.0) > 0 else 0.0
    deviations = np.sqrt(np.divide(squares, shares * tau**2 + noise_squares, out=np.zeros_like(squares), where=squares > 0))
    low, high = (tau * math.sqrt(len(informative) / chi2.ppf(share, len(informative))) for share in (0.95, 0.05))
    why = f"error of {len(informative)} whole settings of the fit beyond the noise of their repeats"
    outlying = [f"{labels[place]} ({format_change(math.expm1(misses[place]))})" for place in informative[deviations > _OUTLYING]]
    if outlying:
        why += f"; outliers, counted with {_CAP:g} standard deviations: {', '.join(outlying)}"
    return Parameter(value=tau, low=low, high=high, freedom=len(informative), why=why)


def factors_of(platform: Platform, setting: TestbedSetting, count: int, rng: np.random.Generator) -> Array:
    """Factors by which the rates of single runs differ from what was simulated: misfit and noise, each drawn once for each of them.

    An interval for one run of a setting holds both: which misfit the setting has is not
    known, and neither is the run's noise. Where a standard deviation was estimated with few
    degrees of freedom, deviations are Student's. They are drawn in equal shares of
    probability, in random order, so that their luck moves no end of the interval.

    Returns
    -------
    ndarray
        Shape ``(count,)``; all 1 where both are zero.
    """
    shares = (np.arange(count) + 0.5) / count
    logs = np.zeros(count)
    for name in ("misfit", "noise"):
        parameter = platform.parameters[of_link(setting, name)]
        quantiles = norm.ppf(shares) if parameter.freedom is None else t.ppf(shares, parameter.freedom)
        logs += parameter.value * rng.permutation(quantiles)
    return np.exp(logs)
