"""The steps of a profile (XPlane), as :mod:`calibrate.xplane` finds them."""

from __future__ import annotations

from pathlib import Path

from calibrate.recorded.run import Facts, Growing, RecordedRun
from calibrate.xplane.reading import profile_files, read_profiles
from calibrate.xplane.steps import StepsOfProfile, steps_of


class ProfiledSteps:
    """The newest profile of a log directory, or one file; it does not grow.

    Parameters
    ----------
    path
        As for :func:`calibrate.xplane.reading.profile_files`.
    python
        A Python that has TensorFlow; this one, if None.
    """

    def __init__(self, path: Path, python: str | None = None) -> None:
        self._path, self._python = path, python
        self._runs: tuple[RecordedRun, ...] = ()

    def more(self) -> None:
        """Read it, once.

        Raises
        ------
        InputError
            There is no profile, or it cannot be read.
        CalibrationError
            It has no steps.
        """
        if not self._runs:
            profiles = read_profiles(profile_files(self._path), self._python)
            self._runs = tuple(_run(steps_of(profile), several=len(profiles) > 1) for profile in profiles)

    def runs(self) -> tuple[RecordedRun, ...]:
        """One for each host."""
        return self._runs


def _run(found: StepsOfProfile, *, several: bool) -> RecordedRun:
    profile = found.profile
    run = Growing(str(profile.path), "profile", profile.host if several else "", ended=True)
    run.facts = Facts(hostname=profile.host, devices=tuple(profile.devices), started=found.started)
    run.remark("steps of a profile are somewhat longer than others, since recording takes time")
    if found.marks.traced:
        run.remark(f"{found.marks.traced} of its steps traced a graph, and are left out")
    for step in found.steps:
        run.add(step.number, step.whole_s, compute_s=step.compute_s, input_s=step.input_s)
    return run.run()
