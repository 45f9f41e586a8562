"""The life of one worker: pull, compute, push, wait, again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from simpy.events import Event

from simulator.engine.recorder import Parts
from simulator.kernel import Kernel
from simulator.network.ports import Connection
from simulator.overlap import Overlap
from simulator.recorder import KernelRecorder
from simulator.replica import Replica
from simulator.strategies.parameter_server.lines import Lines, Pull
from simulator.strategies.parameter_server.pacing import Client, Clocks, Dispatcher, Job
from simulator.strategies.parameter_server.tensors import Tensors
from simulator.strategies.parameter_server.updates import Turn, Updates

__all__ = ["Setting", "Worker"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What all workers of a job have in common.

    Attributes
    ----------
    tensors
        All messages of a step.
    updates
        What becomes of gradients.
    job, clocks, dispatcher
        Which steps a worker may begin, and when.
    client
        Feeds all workers, where it does.
    out_of_steps
        Called when a worker has made all of its steps.
    """

    kernel: Kernel
    recorder: KernelRecorder
    tensors: Tensors
    updates: Updates
    job: Job
    clocks: Clocks | None
    dispatcher: Dispatcher | None
    client: Client | None
    out_of_steps: Callable[[], None]


class Worker:
    """One worker; :meth:`train` is its process.

    Parameters
    ----------
    overlap
        Follows its messages and its compute, where both can go on at the same time.
    input_line
        From the client that feeds all workers, where there is one.
    pull_order
        Where variables are pulled in a random order, the stream that it comes from.
    """

    __slots__ = ("_input_line", "_lines", "_overlap", "_pull_order", "_replica", "_setting")

    def __init__(
        self,
        setting: Setting,
        replica: Replica,
        lines: Lines,
        overlap: Overlap | None,
        input_line: Connection | None,
        pull_order: np.random.Generator | None,
    ) -> None:
        self._setting = setting
        self._replica = replica
        self._lines = lines
        self._overlap = overlap
        self._input_line = input_line
        self._pull_order = pull_order

    def train(self) -> Generator[Event, None, None]:
        """Make steps until there are none left for this worker."""
        setting, replica, worker = self._setting, self._replica, self._replica.index
        kernel, updates, tensors = setting.kernel, setting.updates, setting.tensors
        if replica.paces.start_s:
            yield kernel.timeout(replica.paces.start_s)
        while setting.job.take(worker):
            factor = replica.paces.factors.next()
            start_s = kernel.now
            hold = setting.dispatcher.dispatch() if setting.dispatcher else setting.clocks.hold(worker) if setting.clocks else None
            if hold is not None:
                yield hold
            held_s = kernel.now - start_s
            turn = updates.begin(worker)
            fed = self._lines.feed(self._input_line, setting.client) if self._input_line and setting.client else None
            pull = self._lines.pull(tensors.variables, self._order())
            spent = _Spent()
            complete = yield from self._compute(turn, pull, fed, factor, spent)
            if complete:
                yield turn.go
            waited_s = updates.waited_s(turn) if complete else 0.0
            applied_s = kernel.now - turn.pushed_s - waited_s if complete else 0.0
            hidden_s = self._overlap.take() if self._overlap else 0.0
            accepted = turn.accepted / len(tensors.gradients)
            setting.recorder.step(worker, start_s, Parts(spent.input_s, spent.compute_s, held_s + waited_s, applied_s, hidden_s, accepted))
            if setting.clocks is not None:
                setting.clocks.tick(worker)
        setting.out_of_steps()

    def _order(self) -> Sequence[int]:
        count = len(self._setting.tensors.variables)
        if self._pull_order is None:
            return range(count)
        order: list[int] = self._pull_order.permutation(count).tolist()
        return order

    def _compute(self, turn: Turn, pull: Pull, fed: Event | None, factor: float, spent: _Spent) -> Generator[Event, None, bool]:
        """Forward and backward pass; False if the worker stopped because its gradients would come too late."""
        kernel, tensors, paces = self._setting.kernel, self._setting.tensors, self._replica.paces
        work_s = 0.0  # of the forward pass, ready to be done
        cuts = tensors.forward
        for number, (share, needed) in enumerate(cuts):
            come = pull.need(needed)
            if come is not None and work_s:
                if not (yield from self._work(turn, work_s * factor, "forward", spent)):
                    return False
                work_s = 0.0
                come = pull.need(needed)
            if come is not None:
                yield come
            if not number:
                asked_s = kernel.now
                if fed is None:
                    fed = self._replica.next_batch()
                if fed is not None and not fed.processed:
                    yield fed
                spent.input_s = kernel.now - asked_s
            work_s += ((cuts[number + 1][0] if number + 1 < len(cuts) else 1.0) - share) * paces.forward_s
        done, name = 0.0, "forward and backward"
        for ready, indices in tensors.backward:
            part_s = (work_s + (ready - done) * paces.backward_s) * factor
            if self._overlap is None:  # nothing can stop it, or slow it down
                begun_s = kernel.now
                yield self._replica.compute(part_s, name)
                spent.compute_s += kernel.now - begun_s
            elif not (yield from self._work(turn, part_s, name, spent)):
                return False
            done, work_s, name = ready, 0.0, "backward"
            for index in indices:
                gradient = tensors.gradients[index]
                self._lines.push(gradient, partial(self._setting.updates.arrived, gradient, turn))
        return True

    def _work(self, turn: Turn, work_s: float, name: str, spent: _Spent) -> Generator[Event, None, bool]:
        """Compute for some seconds of work; False if stopped before the end."""
        begun_s = self._setting.kernel.now
        outdated = self._setting.updates.outdated(turn)
        if self._overlap is not None:
            self._overlap.compute(True)
        done = self._replica.compute(work_s, name)
        if outdated is None:
            yield done
        else:
            yield done | outdated
            if not done.processed:
                self._replica.abandon(done, name, begun_s)
        if self._overlap is not None:
            self._overlap.compute(False)
        spent.compute_s += self._setting.kernel.now - begun_s
        return done.processed


class _Spent:
    """Seconds of a step so far."""

    __slots__ = ("compute_s", "input_s")

    def __init__(self) -> None:
        self.input_s = 0.0
        self.compute_s = 0.0
