"""Finds the profiles under a TensorBoard log directory."""

from __future__ import annotations

from pathlib import Path

from simulator.errors import InputError

__all__ = ["profile_files"]

_SUFFIX = ".xplane.pb"
_HOW_TO = "tf.profiler.experimental.start(LOGDIR) and stop(), or the callback TensorBoard(LOGDIR, profile_batch=(10, 30)), writes one"


def profile_files(place: Path, run: str | None = None) -> list[Path]:
    """The XPlane files of one profiling run, one a host, sorted.

    Parameters
    ----------
    place
        A TensorBoard log directory (``plugins/profile/RUN/HOST.xplane.pb`` somewhere below
        it), the folder of one run, or one file.
    run
        Name of the run's folder; None takes the newest, which is the last by name, as
        TensorFlow names runs by their date.

    Raises
    ------
    InputError
        There is no profile, or none of that name.
    """
    if place.is_file():
        if run is not None:
            raise InputError(f"--profile-run {run!r}: {place} is one profile already; leave it out, or give its log directory")
        if not place.name.endswith(_SUFFIX):
            raise InputError(
                f"--from-profile {place}: must end in {_SUFFIX}, which the profiler's files do; give one, or its log directory"
            )
        return [place]
    if not place.is_dir():
        raise InputError(f"--from-profile {place}: there is no such file or folder; check the path")
    runs: dict[Path, list[Path]] = {}
    for file in place.rglob(f"*{_SUFFIX}"):
        runs.setdefault(file.parent, []).append(file)
    if not runs:
        raise InputError(f"--from-profile {place}: holds no profile (*{_SUFFIX}); {_HOW_TO}")
    folders = sorted(runs, key=lambda folder: (folder.name, str(folder)))
    chosen = folders if run is None else [folder for folder in folders if folder.name == run]
    if not chosen:
        known = ", ".join(folder.name for folder in folders[-5:])
        raise InputError(f"--profile-run {run!r}: {place} has no run of that name; it has {known}")
    return sorted(runs[chosen[-1]])
