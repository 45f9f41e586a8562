"""Who may begin a step, and when: the job's length, stale-synchronous clocks, the coordinator."""

from __future__ import annotations

from collections.abc import Callable

from simpy.events import Event

from simulator.kernel import Kernel
from simulator.network.ports import Arrived
from simulator.strategies.servers import Coordinator

__all__ = ["Client", "Clocks", "Dispatcher", "Job"]


class Job:
    """Steps that are still to be handed out.

    Parameters
    ----------
    shared
        Steps of all workers together; none if there is no end before the measurement's.
    each
        Steps of every worker; none likewise.
    """

    def __init__(self, workers: int, shared: int | None, each: int | None) -> None:
        self._shared = shared
        self._left = None if each is None else [each] * workers

    def take(self, worker: int) -> bool:
        """Whether there is one more step for this worker; it is taken then."""
        if self._left is not None:
            self._left[worker] -= 1
            return self._left[worker] >= 0
        if self._shared is None:
            return True
        self._shared -= 1
        return self._shared >= 0


class Clocks:
    """Stale-synchronous parallel: nobody begins a step while more than ``bound`` steps ahead of the slowest.

    Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
    server", NIPS 2013. A worker's clock counts the steps that it has ended.
    """

    def __init__(self, kernel: Kernel, workers: int, bound: int) -> None:
        self._kernel = kernel
        self._bound = bound
        self._clock = [0] * workers
        self._at = {0: workers}  # workers at each clock
        self._slowest = 0
        self._waiting: list[Event] = []

    def hold(self, worker: int) -> Event | None:
        """The event that the worker may begin its next step; none if it may now."""
        if self._clock[worker] - self._slowest <= self._bound:
            return None
        # it is exactly one step too far, like everybody who waits: they go on together
        event = self._kernel.event()
        self._waiting.append(event)
        return event

    def tick(self, worker: int) -> None:
        """The worker has ended a step."""
        clock = self._clock[worker]
        self._clock[worker] = clock + 1
        self._at[clock] -= 1
        self._at[clock + 1] = self._at.get(clock + 1, 0) + 1
        if self._at[self._slowest]:
            return
        del self._at[self._slowest]
        self._slowest += 1
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            event.succeed()


class Dispatcher:
    """``ClusterCoordinator``: one process hands out steps, one at a time, in the order in which workers ask.

    Parameters
    ----------
    work
        How it works on cores that it shares with others; none if it has one of its own.
    """

    def __init__(self, kernel: Kernel, coordinator: Coordinator, work: Callable[[float], Event] | None = None) -> None:
        self._kernel = kernel
        self._coordinator = coordinator
        self._work = work
        self._free_s = 0.0

    def dispatch(self) -> Event:
        """The event that the step of the worker that asks now reaches it."""
        if self._work is not None:
            return self._on_cores(self._work(self._coordinator.dispatch_s))
        now = self._kernel.now
        self._free_s = max(self._free_s, now) + self._coordinator.dispatch_s
        return self._kernel.timeout(self._free_s + self._coordinator.latency_s - now)

    def _on_cores(self, worked: Event) -> Event:
        """The event that a step whose handing out ends with ``worked`` reaches the worker."""
        latency_s = self._coordinator.latency_s
        if not latency_s:
            return worked
        reached = self._kernel.event()
        assert worked.callbacks is not None
        worked.callbacks.append(lambda _: self._kernel.call_later(latency_s, lambda _: _happen(reached)))
        return reached


class Client:
    """In-graph replication: one process prepares every worker's batch, one at a time, and sends it.

    Parameters
    ----------
    input_s
        Seconds in which it prepares a batch.
    input_bytes
        Bytes of a batch on the network.
    work
        How it works on cores that it shares with others; none if it has one of its own.
    """

    def __init__(self, kernel: Kernel, input_s: float, input_bytes: float, work: Callable[[float], Event] | None = None) -> None:
        self._kernel = kernel
        self._input_s = input_s
        self._work = work
        self._free_s = 0.0
        self.input_bytes = input_bytes

    def prepare(self, prepared: Arrived) -> None:
        """Prepare the batch of the worker that asks now; ``prepared`` is called when that is done."""
        if not self._input_s:
            prepared(None)
        elif self._work is not None:
            done = self._work(self._input_s)
            assert done.callbacks is not None
            done.callbacks.append(prepared)
        else:
            self._free_s = max(self._free_s, self._kernel.now) + self._input_s
            self._kernel.call_later(self._free_s - self._kernel.now, prepared)


def _happen(event: Event) -> None:
    event.succeed()
