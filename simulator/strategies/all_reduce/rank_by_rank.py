"""Every replica a process of its own: where replicas share devices, or every message is to be seen."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from simpy.events import Event

from simulator.collectives import AllReduce
from simulator.fusion import Bucket
from simulator.kernel import Kernel
from simulator.recorder import Parts, Recorder
from simulator.records import Update
from simulator.replica import Replica
from simulator.scenario import Scenario
from simulator.strategies.all_reducing import AllReduceStrategy

__all__ = ["RankByRank"]


class RankByRank:
    """The training of each rank on the event calendar.

    Parameters
    ----------
    all_reduce
        How gradients (or variables, of local SGD) are reduced; none of one replica alone.
    buckets
        Gradients in the order in which they become ready.
    """

    def __init__(
        self,
        kernel: Kernel,
        scenario: Scenario,
        replicas: Sequence[Replica],
        all_reduce: AllReduce | None,
        buckets: Sequence[Bucket],
        recorder: Recorder,
    ) -> None:
        strategy = scenario.strategy
        self._kernel = kernel
        self._recorder = recorder
        self._all_reduce = all_reduce
        self._every = strategy.sync_every if isinstance(strategy, AllReduceStrategy) else 1
        self._buckets = buckets if self._every == 1 else [Bucket(1.0, 0.0)]
        # between two averages some ranks are ahead: the window closes amid their steps as it opened, so nobody stops before
        self._steps = scenario.run.steps + (self._every if self._every > 1 else 0)
        self._updates = 0
        self._applied_s = 0.0
        self._last_ready_s: dict[int, float] = {}  # of each step, when the last rank had all that it reduces
        devices = list(dict.fromkeys(replica.device for replica in replicas))
        recorder.watch("devices", lambda: devices)
        for replica in replicas:
            kernel.start(f"replica {replica.index}", self._train(replica))

    def _train(self, replica: Replica) -> Generator[Event, None, None]:
        kernel, rank, paces = self._kernel, replica.index, replica.paces
        if paces.start_s:
            yield kernel.timeout(paces.start_s)
        for step in range(self._steps):
            start_s = kernel.now
            batch = replica.next_batch()
            if batch is not None:
                yield batch
            input_s = kernel.now - start_s
            factor = paces.factors.next()
            gradients = self._all_reduce if self._every == 1 else None
            finished = gradients.finished(rank) if gradients else None
            done = 0.0
            entered_s: list[float] = []
            for number, (ready, _) in enumerate(self._buckets):
                work_s = (ready - done) * paces.backward_s + (0.0 if number else paces.forward_s)
                yield replica.compute(work_s * factor, "backward" if number else "forward and backward")
                done = ready
                if gradients:
                    entered_s.append(kernel.now)
                    gradients.ready(rank, number)
            ready_s = kernel.now
            hidden_s = 0.0
            compute_s = ready_s - start_s - input_s
            if finished is not None:
                self._note(step, ready_s)
                yield finished
                hidden_s = _hidden_s(entered_s, gradients.ended_s(rank), ready_s) if gradients else 0.0
            apply_begun_s = kernel.now
            yield replica.compute(paces.apply_s * factor, "apply")
            apply_s = kernel.now - apply_begun_s
            if self._every > 1 and self._all_reduce is not None and (step + 1) % self._every == 0:
                ready_s = kernel.now
                self._note(step, ready_s)
                finished = self._all_reduce.finished(rank)
                self._all_reduce.ready(rank, 0)
                yield finished
            waiting_s = self._last_ready_s[step] - ready_s if finished is not None else 0.0
            self._end_step(replica, step, start_s, Parts(input_s, compute_s, waiting_s, apply_s, hidden_s))

    def _note(self, step: int, ready_s: float) -> None:
        self._last_ready_s[step] = max(ready_s, self._last_ready_s.get(step, 0.0))

    def _end_step(self, replica: Replica, step: int, start_s: float, parts: Parts) -> None:
        self._last_ready_s.pop(step - 2 * self._every, None)
        # all replicas apply the same update, each to its own copy; it is counted once
        if replica.index == 0 and (step + 1) % self._every == 0:
            read_s = start_s if self._every == 1 else self._applied_s
            self._applied_s = self._kernel.now
            self._recorder.update(Update(0, read_s, self._applied_s, self._updates, self._updates, ()))
            self._updates += 1
        self._recorder.step(replica.index, start_s, parts)


def _hidden_s(entered_s: Sequence[float], ended_s: Sequence[float], computed_s: float) -> float:
    """Seconds in which the rank was in an all-reduce and still computed; one follows the other."""
    free_s = 0.0
    hidden_s = 0.0
    for entered, ended in zip(entered_s, ended_s, strict=True):
        hidden_s += max(min(ended, computed_s) - max(entered, free_s), 0.0)
        free_s = ended
    return hidden_s
