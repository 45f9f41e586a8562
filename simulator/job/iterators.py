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

import bisect
import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.scenario import Scenario
from simulator.spec.job import IteratorEnds

_FIRST_MS, _LONGEST_MS = 20, 60_000
"""Between the first two turns of a tuning thread, each later time being twice as long; and at the most (``model.h``)."""
_TURNS_MS = tuple(_FIRST_MS * ((1 << number) - 1) for number in range(1, 13))
"""Ages of an iterator at its turns until their distance grows no more: 20, 60, 140, ... 81,900 ms."""
_DIGITS = 6
"""Of a millisecond; a sum that falls on a turn is that turn."""


def next_turn_s(age_s: float) -> float:
    """Age at the next turn of an iterator's tuning thread.

    >>> next_turn_s(0.1), next_turn_s(0.14), next_turn_s(30.0), next_turn_s(100.0), next_turn_s(261.9)
    (0.14, 0.3, 40.94, 141.9, 321.9)
    """
    age_ms, last_ms = round(1000.0 * age_s, _DIGITS), _TURNS_MS[-1]
    if age_ms < last_ms:
        return _TURNS_MS[bisect.bisect_right(_TURNS_MS, age_ms)] / 1000.0
    return (last_ms + _LONGEST_MS * (math.floor((age_ms - last_ms) / _LONGEST_MS) + 1)) / 1000.0


def longest_wait_s(age_s: float) -> float:
    """For which the end of one iterator of that age may last: until that turn."""
    return next_turn_s(age_s) - age_s


def ended_by(scenario: Scenario) -> tuple[int, int]:
    """Iterators that a process ends, and processes that wait for one another.

    One that trains alone has one. Under a ``tf.distribute`` strategy it has one on the host and one for each of its replicas
    (``OwnedMultiDeviceIterator``). Of a model that is cut each copy has one, on the host that reads its batches.
    """
    layout = scenario.layout
    if layout.ranks_per_replica > 1:
        return 1, layout.replicas
    return (1 if layout.replicas == 1 else 1 + layout.replicas_per_process), layout.processes


@dataclass(frozen=True)
class Iterators:
    """What ends together, in one run: the training goes on when the last process has ended the last of its own.

    A process ends its iterators one after the other, so that each of which the thread sleeps on waits for one turn more: all
    have begun together, and their turns are the same.

    Attributes
    ----------
    of_process, processes
        As :func:`ended_by` has them.
    share
        Of ends for which a thread sleeps on.
    draw
        Decides which.
    """

    of_process: int
    processes: int
    share: float
    draw: np.random.Generator

    @classmethod
    def of_run(cls, measured: IteratorEnds, ended: tuple[int, int], draw: np.random.Generator) -> Iterators:
        """Of one run, which draws a share that the measured counts allow for: Beta(waited + 1/2, ended - waited + 1/2), by Jeffreys."""
        share = float(draw.beta(measured.waited + 0.5, measured.ended - measured.waited + 0.5))
        return cls(*ended, share, draw)

    @cached_property
    def _most_waits(self) -> tuple[float, ...]:
        """Chance that no process waits for more than 0, 1, 2, ... turns."""
        from scipy import stats  # most scenarios need none of it

        return tuple(stats.binom.cdf(range(self.of_process + 1), self.of_process, self.share) ** self.processes)

    def wait_s(self, age_s: float) -> float:
        """Seconds for which iterators of one age stop the training when they end, in this run."""
        turns = bisect.bisect_left(self._most_waits, self.draw.random())
        return self._after_s(age_s, min(turns, self.of_process))

    def mean_wait_s(self, age_s: float) -> float:
        """The same in the mean over draws."""
        chances = (most - fewer for fewer, most in itertools.pairwise((0.0, *self._most_waits)))
        return math.fsum(chance * self._after_s(age_s, turns) for turns, chance in enumerate(chances))

    @staticmethod
    def _after_s(age_s: float, turns: int) -> float:
        ended_s = age_s
        for _ in range(turns):
            ended_s = next_turn_s(ended_s)
        return ended_s - age_s
