"""Ends of ``tf.data`` iterators between epochs, for which a training may stand still.

Keras' ``fit`` makes a new iterator for each epoch of a finite data set, and ends the last one before the first step
(``EpochIterator`` in ``keras/src/trainers/epoch_iterator.py``, whose iterator the loop of ``fit`` keeps until then). One of an
evaluation ends with it, as does one of a loop ``for batch in dataset``. Where an iterator is tuned
(``tf.data.Options().autotune``, on by default), a thread of its own wakes up every so often, and the end of the iterator waits
for that thread. TensorFlow wakes it for that (``Model::OptimizeLoop`` in ``tensorflow/core/framework/model.cc`` waits on a
condition that a callback of the cancellation signals), but marks the cancellation as made only when all callbacks have run
(``CancellationManager::StartCancelWithStatus`` in ``xla/tsl/framework/cancellation.cc``). A thread that is quick to wake up sees
no cancellation, and sleeps on: until its next turn, which is as far off as the iterator is old, and 60 s at the most.

How often that happens is a matter of who gets which core (docs/first-epochs.md). It is measured, and never assumed.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from simulator.overheads import IteratorEnds

__all__ = ["Iterators", "longest_wait_s", "next_turn_s"]

_FIRST_S, _LONGEST_S = 0.02, 60.0
"""Between the first two turns of a tuning thread, each later time being twice as long; and at the most (``model.h``)."""
_TURNS_S = tuple(_FIRST_S * (2.0**number - 1.0) for number in range(1, 13))
"""Ages of an iterator at its turns until their distance grows no more: 0.02, 0.06, 0.14, ... 81.9 s."""


def next_turn_s(age_s: float) -> float:
    """Age at the next turn of an iterator's tuning thread.

    >>> round(next_turn_s(0.1), 2), round(next_turn_s(30.0), 2), round(next_turn_s(100.0), 1)
    (0.14, 40.94, 141.9)
    """
    early = next((turn_s for turn_s in _TURNS_S if turn_s > age_s), None)
    if early is not None:
        return early
    last_s = _TURNS_S[-1]
    return last_s + _LONGEST_S * (math.floor((age_s - last_s) / _LONGEST_S) + 1)


def longest_wait_s(age_s: float) -> float:
    """For which the end of one iterator of that age may last: as long as it is old, or nearly, and 60 s at the most."""
    return next_turn_s(age_s) - age_s


@dataclass(frozen=True)
class Iterators:
    """What ends together, in one run: the training goes on when the last process has ended the last of its own.

    A process ends its iterators one after the other, so that each of which the thread sleeps on waits for one turn more: all
    have begun together, and their turns are the same.

    Attributes
    ----------
    of_process
        Iterators that a process ends: one, or under a ``tf.distribute`` strategy that of the host and one for each of its replicas
        (``OwnedMultiDeviceIterator``).
    processes
        That wait for one another.
    share
        Of ends for which a thread sleeps on.
    draw
        Decides which; none: nothing is drawn, of what is a mean.
    """

    of_process: int
    processes: int
    share: float
    draw: np.random.Generator | None = None

    @classmethod
    def of_run(cls, measured: IteratorEnds, replicas_per_process: int, processes: int, draw: np.random.Generator) -> Iterators:
        """Of one run, which draws a share that the measured counts allow for: Beta(waited + 1/2, ended - waited + 1/2), by Jeffreys."""
        share = float(draw.beta(measured.waited + 0.5, measured.ended - measured.waited + 0.5))
        alone = replicas_per_process * processes == 1
        return cls(1 if alone else 1 + replicas_per_process, processes, share, draw)

    @cached_property
    def _most_waits(self) -> np.ndarray:
        """Chance that no process waits for more than 0, 1, 2, ... turns."""
        return np.asarray(stats.binom.cdf(np.arange(self.of_process + 1), self.of_process, self.share)) ** self.processes

    def wait_s(self, age_s: float) -> float:
        """Seconds for which iterators of one age stop the training when they end, in this run."""
        assert self.draw is not None
        turns = int(np.searchsorted(self._most_waits, self.draw.random()))
        return self._after_s(age_s, min(turns, self.of_process))

    def mean_wait_s(self, age_s: float) -> float:
        """The same in the mean over draws."""
        chances = np.diff(self._most_waits, prepend=0.0)
        return math.fsum(float(chance) * self._after_s(age_s, turns) for turns, chance in enumerate(chances))

    @staticmethod
    def _after_s(age_s: float, turns: int) -> float:
        *_, ended_s = itertools.accumulate(range(turns), lambda at_s, _: next_turn_s(at_s), initial=age_s)
        return ended_s - age_s
