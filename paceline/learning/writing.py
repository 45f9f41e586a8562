"""Files of what was learned: the answer as JSON, every curve as a table, and runs for TensorBoard."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.learning.learned import MARK, Learned
from simulator.base.files import Output, OutputKind, check_apart, marked_kind
from simulator.observing.tensorboard import ScalarFiles

ANSWER = marked_kind("answer about learning", MARK)
_CURVES = OutputKind(
    "is no table of curves", lambda path: path.open(encoding="utf-8", errors="replace").readline().startswith("way,rate,seed,time_s,")
)
_OTHER = re.compile(r"[^A-Za-z0-9]+")


class Files:
    """What is to be written, made sure of before the work.

    Parameters
    ----------
    out, curves, tensorboard
        Where the answer, the curves, and runs for TensorBoard go; None: nowhere.
    force
        Replace whatever is there.
    reads
        A file that is read, which none of them may be.

    Raises
    ------
    InputError
        One cannot be written, is something else, or two of them are one.
    """

    def __init__(self, out: Path | None, curves: Path | None, tensorboard: Path | None, *, force: bool, reads: Path | None) -> None:
        check_apart([("`out`", out), ("`curves`", curves)])
        read = () if reads is None else (reads,)
        self._out = None if out is None else Output(out, ANSWER, force=force, reads=read)
        self._curves = None if curves is None else Output(curves, _CURVES, force=force, argument="curves", reads=read)
        self._runs = None if tensorboard is None else ScalarFiles(tensorboard, force=force)

    def write(self, learned: Learned) -> None:
        """Write what was asked for."""
        if self._out is not None:
            self._out.write(learned.to_json() + "\n")
        if self._curves is not None:
            self._curves.write(learned.curves().to_csv())
        if self._runs is None:
            return
        for way in learned.ways:
            for run in way.runs:
                name = f"{_OTHER.sub('-', way.name).strip('-')}/seed-{run.seed}"
                self._runs.write(name, ((point.time_s, point.updates, point.metrics) for point in run.points))
