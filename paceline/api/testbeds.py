"""Library functions for real TensorFlow clusters on this machine: run, read, fit, predict.

Parameters, defaults and docstrings are also the options and the help of ``paceline testbed``. The work is done in ``calibrate/testbed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.arguments import (
    File,
    Folder,
    Force,
    MustBe,
    Progress,
    Python,
    Seed,
    Settings,
    TestbedSource,
    Text,
    Timeout,
    Typed,
    checked,
    instance_of,
)
from simulator.base.errors import CalibrationError, InputError

if TYPE_CHECKING:
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.prediction import Prediction
    from calibrate.testbed.readings import Readings
    from calibrate.testbed.summary import TestbedRun
else:
    Platform = instance_of("calibrate.testbed.platform", "Platform")


@checked
def testbed(
    setting: TestbedSource = None,
    settings: Settings = (),
    *,
    repeats: Annotated[int, MustBe("a whole number from 1 to 1,000", least=1, most=1000)] = 3,
    seed: Seed = 0,
    timeout_s: Timeout = 600.0,
    python: Python = None,
    measurements: Folder = "measurements",
    progress: Progress = None,
) -> TestbedRun:
    """Start a real TensorFlow cluster on this machine, train on it, and measure every step.

    Workers and parameter servers are processes in network namespaces that nobody else can
    reach. Nothing of them is left behind, however the run ends. Raw measurements are kept, and never
    overwritten.

    Parameters
    ----------
    setting
        File with the keys of a setting; left out: the defaults.

        Or nested tables as such a file has them. The defaults are 4 asynchronous workers of ``ladder-1mb`` and a parameter server on
        links of 400 Mbit/s, with compute drawn from an exponential law of mean 100 ms.
    settings
        Keys of the setting to change, such as workers=8 or link.bandwidth='1 Gbit/s'.

        They are those of :class:`calibrate.testbed.setting.TestbedSetting`, quantities text with a unit. ``link = "loopback"`` needs
        no root. ``model`` is a synthetic one (``"ladder-4mb"``), ``"FILE.py:FUNCTION"`` or a workload.
    repeats
        How often it is run; each repeat starts a new cluster.
    seed
        Seed of emulated compute and of staggered starts.
    timeout_s
        Seconds after which a repeat is given up.
    python
        A Python that has TensorFlow; left out: the one that runs Paceline.
    measurements
        Folder for raw measurements; each run adds a file.
    progress
        Called with the number of repeats done and of all.

    Returns
    -------
    TestbedRun
        Updates/s and samples/s of each repeat with the 90% interval of the next; staleness in updates; where a
        step's time goes, in seconds; bytes and CPU seconds of each job.

    Warns
    -----
    PacelineWarning
        Links cannot be shaped here, and none were asked for: the run is on loopback. Or the run failed and is made once more.

    Raises
    ------
    InputError
        One line for each rule broken, with file and dotted key; or this machine cannot run it.
    CalibrationError
        A task died or hung, in both of two runs. Whole repeats are kept; a note on the error says where.

    Examples
    --------
    >>> testbed(settings={"workers": 0})
    Traceback (most recent call last):
        ...
    simulator.base.errors.ScenarioError: setting: workers: 0 must be at least 1
    """
    from calibrate.testbed.loading import load_setting
    from calibrate.testbed.model import describe_model
    from calibrate.testbed.running import measure_setting, on_available_links, retried
    from calibrate.testbed.summary import TestbedRun
    from simulator.catalogue.loading import pairs_of

    pairs = pairs_of(settings)
    chosen = setting is not None or any(key.partition(".")[0] == "link" for key, _ in pairs)
    loaded = load_setting(setting, pairs, lambda model, batch: describe_model(model, python, batch))
    source = str(setting) if isinstance(setting, (str, Path)) else "setting"
    able = on_available_links(loaded, source, chosen=chosen)

    def measure() -> Readings:
        return measure_setting(
            able, Path(measurements), repeats=repeats, seed=seed, timeout_s=timeout_s, python=python,
            progress=None if progress is None else lambda done, total, _: progress(done, total),
        )  # fmt: skip

    return TestbedRun.of(retried(measure, able.label))


@checked
def testbed_read(file: File) -> TestbedRun:
    """Read what :func:`testbed` has measured. Of a run that failed or was stopped, whole repeats are read.

    Parameters
    ----------
    file
        A file of raw measurements.

    Returns
    -------
    TestbedRun
        As of :func:`testbed`.

    Raises
    ------
    InputError
        The file does not exist, is damaged, is no testbed run, or holds no whole repeat.

    Examples
    --------
    >>> testbed_read("nowhere.ndjson")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: nowhere.ndjson: cannot be read: No such file or directory; check the path
    """
    from calibrate.testbed.summary import TestbedRun

    try:
        return TestbedRun.read(Path(file))
    except CalibrationError as error:  # no run has failed: the file is not one to be read
        raise InputError(str(error)) from None


@checked
def testbed_fit(
    files: Annotated[Sequence[str | Path], MustBe("a list of files of measurements"), Typed(place=True, metavar="FILE...", reads="files")],
    *,
    name: Text = "testbed",
    out: Annotated[File | None, Typed(short="-o", metavar="FILE.json")] = None,
    seed: Seed = 0,
    force: Force = False,
    progress: Progress = None,
) -> Platform:
    """Fit what this machine and TensorFlow cost beyond bytes and compute, from small runs of :func:`testbed`.

    Each parameter gets a 90% interval and a sentence on what determines it. One that the runs do
    not determine keeps a documented prior, and is marked.

    Parameters
    ----------
    files
        Measurement files of ``paceline testbed run`` with emulated, constant compute: of 1 worker, or of a ring of 2.

        Of 1 worker in the modes with servers; at least two sizes of the model, and both links and loopback where both are to be predicted.
    name
        Name of the machine.
    out
        File to write the parameters to.

        :func:`testbed_predict` reads it. One that is there is replaced; None writes none.
    seed
        Seed of the draws that stand for what the fit leaves open.
    force
        Replace the file at ``out`` whatever it is.
    progress
        Called with the number of fits done and of all.

    Returns
    -------
    Platform
        The machine's parameters, in seconds and bytes, with their intervals.

    Warns
    -----
    PacelineWarning
        A file cannot be read and is left out.

    Raises
    ------
    InputError
        No file can be fitted, or ``out`` cannot be written or is something else.

    Examples
    --------
    >>> testbed_fit([])
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `files`: none of them can be fitted; measure with `paceline testbed run`
    """
    import warnings

    from calibrate.testbed.fitting import fit_platform
    from calibrate.testbed.platform import MACHINE
    from calibrate.testbed.readings import read_run
    from simulator.base.errors import PacelineWarning
    from simulator.base.files import Output

    if out is not None:
        Output(Path(out), MACHINE, force=force)
    readings = []
    for path in map(Path, files):
        try:
            readings.append(read_run(path))
        except CalibrationError as error:  # such as a run that was stopped
            warnings.warn(PacelineWarning(f"left out: {error}"), stacklevel=3)  # through the check of the arguments
    if not readings:
        raise InputError("`files`: none of them can be fitted; measure with `paceline testbed run`")
    following = None if progress is None else lambda done, total, _: progress(done, total)
    try:
        platform = fit_platform(readings, name, readings[0].cores, seed=seed, progress=following)
    except CalibrationError as error:  # nothing has failed: the files are not the ones that are needed
        raise InputError(f"{', '.join(map(str, files[:3]))}: {error}") from None
    if out is not None:
        platform.write(Path(out), force=force)
    return platform


@checked
def testbed_predict(
    platform: Annotated[
        str | Path | Platform,
        MustBe("a file as `paceline.testbed_fit` writes it, or what it returns"),
        Typed(place=True, metavar="FILE.json"),
    ],
    setting: TestbedSource = None,
    settings: Settings = (),
    *,
    replications: Annotated[int, MustBe("a whole number from 19 to 10,000", least=19, most=10_000)] = 59,
    seed: Seed = 0,
    python: Python = None,
) -> Prediction:
    """Predict what :func:`testbed` would measure in a setting, without running it.

    Parameters
    ----------
    platform
        File of parameters that ``paceline testbed fit`` has written.

        Or what :func:`testbed_fit` returned.
    setting, settings
        As for :func:`testbed`.

        Compute must be emulated.
    replications
        Simulated runs.

        Each has its own draw of what the fit leaves open.
    seed
        Seed of the simulation.
    python
        A Python that can build a model ``FILE.py:FUNCTION``; left out: the one that runs Paceline.

    Returns
    -------
    Prediction
        Updates/s and samples/s with the 90% interval of one run, and staleness in updates.

    Raises
    ------
    InputError
        One line for each rule broken; or the file holds no parameters.

    Examples
    --------
    >>> from calibrate.testbed.platform import MEANINGS, Parameter, Platform
    >>> unmeasured = Platform(name="any", cores=2, parameters={name: Parameter.prior(name) for name in MEANINGS})
    >>> slow = testbed_predict(unmeasured, settings={"mode": "between-graph", "workers": 2, "steps": 10}, replications=19)
    >>> fast = testbed_predict(
    ...     unmeasured, settings={"mode": "between-graph", "workers": 2, "steps": 10, "compute.mean": "20 ms"}, replications=19
    ... )
    >>> slow.updates_per_s.mean < fast.updates_per_s.mean, slow.undetermined[0]
    (True, 'session_s')
    """
    from calibrate.testbed.loading import load_setting
    from calibrate.testbed.model import describe_model
    from calibrate.testbed.platform import Platform
    from calibrate.testbed.prediction import predict_setting
    from simulator.catalogue.loading import pairs_of

    fitted = platform if isinstance(platform, Platform) else Platform.read(Path(str(platform)))
    loaded = load_setting(setting, pairs_of(settings), lambda model, batch: describe_model(model, python, batch))
    if loaded.compute.kind == "real":
        raise InputError(
            "compute.kind: 'real': how long it takes is not known without a run; set a mean and a law, or compare in a matrix "
            "(`paceline validate`)"
        )
    return predict_setting(loaded, fitted, replications=replications, seed=seed)
