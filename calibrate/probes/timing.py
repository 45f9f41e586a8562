"""Times plain training steps of any framework: warm-up, rounds over all batch sizes, rounds measured again.

A probe gives its steps and how to wait for the device; records are those of calibrate/measurements.py.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any, Callable

from . import load
from .recorder import progress

WINDOW = 5
WARM_UP_WINDOWS = 12
WARM_UP_AGREEMENT = 0.05
WARM_UP_LIMIT_S = 60.0
FIRST_PAUSE_S = 0.1
TOGETHER_LIMIT_S = 300.0

Step = Callable[[], Any]


class Timing:
    """Times steps, each until the device has done all of it."""

    def __init__(self, arguments: Any, recorder: Any) -> None:
        self.arguments = arguments
        self.recorder = recorder
        self.batches = [int(part) for part in arguments.batches.split(",")]

    def wait(self, result: Any) -> None:
        """Until the device has done all that was asked of it; ``result`` is what the step has returned."""
        raise NotImplementedError

    @property
    def split_steps(self) -> int:
        """Steps at each batch size that tell how the passes share a step."""
        return max(10, min(20, self.arguments.steps))

    def timed(self, step: Step) -> float:
        """Seconds of a step."""
        return self._clocked(step)[0]

    def _clocked(self, step: Step) -> tuple[float, float]:
        """Seconds of a step, and processor seconds of all threads of this process in it."""
        start, used = time.perf_counter(), time.process_time()
        self.wait(step())
        return time.perf_counter() - start, time.process_time() - used

    def warm_up(self, batch: int, step: Step) -> None:
        """Step until the medians of two windows in a row agree; the first step traces or compiles."""
        began = time.perf_counter()
        previous = None
        for window in range(WARM_UP_WINDOWS + 1):
            times = [self.timed(step) for _ in range(1 if window == 0 else WINDOW)]
            for seconds in times:
                self.recorder.write("warmup", batch=batch, seconds=seconds)
            if window == 0:
                continue
            median = statistics.median(times)
            if previous is not None and abs(median - previous) <= WARM_UP_AGREEMENT * previous:
                return
            if time.perf_counter() - began > WARM_UP_LIMIT_S:
                return
            previous = median

    def time_plain(self, steps: dict[int, Step], total: int) -> None:
        """Rounds over all batch sizes, so that a drift of the machine touches all alike.

        A round that something else disturbed is measured again, later and later, since what
        disturbs often passes; both are kept.
        """
        rounds = max(1, min(self.arguments.rounds, self.arguments.steps // 2))
        repeats = min(self.arguments.repeats, (rounds + 1) // 2)
        watch, judge = load.Watch(), load.Judge()
        usual: dict[int, float] = {}
        done = turn = repeated = wanted = 0
        while wanted < rounds:
            share = self.arguments.steps * (wanted + 1) // rounds - self.arguments.steps * wanted // rounds
            watch.begin()
            means = {batch: self._round_of(batch, step, turn, share) for batch, step in steps.items()}
            seen = watch.end()
            for batch, mean in means.items():
                usual.setdefault(batch, mean)
            why = judge.round(seen, statistics.mean(means[batch] / usual[batch] for batch in means))
            self.recorder.write("load", stage="round", round=turn, why=why, **seen)
            turn += 1
            if why and repeated < repeats:
                progress(done, total, "measured again: " + why)
                time.sleep(FIRST_PAUSE_S * 2**repeated)
                repeated += 1
                continue
            wanted += 1
            done += share * len(steps)
            progress(done, total, f"round {wanted} of {rounds}")
        together = judge.all_rounds()
        if together is not None:
            self.recorder.write("load", stage="rounds", **together)

    def _round_of(self, batch: int, step: Step, turn: int, count: int) -> float:
        """Time some steps of one batch size; returns their mean."""
        self.timed(step)  # the first after a change of batch size finds cold caches
        times = []
        for _ in range(count):
            seconds, cpu_s = self._clocked(step)
            times.append(seconds)
            self.recorder.write("step", batch=batch, round=turn, seconds=seconds, cpu_s=cpu_s)
        return statistics.mean(times)


def wait_for_all(together: str) -> None:
    """Until as many processes as belong together have come here: each leaves a file in the folder."""
    folder, process, processes = together.rsplit(":", 2)
    with open(os.path.join(folder, process), "x", encoding="ascii"):
        pass
    began = time.monotonic()
    while len(os.listdir(folder)) < int(processes):
        if time.monotonic() - began > TOGETHER_LIMIT_S:
            raise TimeoutError(f"the other processes of this launch did not begin within {TOGETHER_LIMIT_S:g} s")
        time.sleep(0.01)
