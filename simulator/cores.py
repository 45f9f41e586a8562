"""One machine's cores, where all nodes of a cluster are processes on it.

Whatever is at work shares the cores equally, each task on one core at most: processor
sharing, as a fair scheduler comes to over some time slices. With k tasks on c cores each
goes on at min(1, c / k) of its own speed.
"""

from __future__ import annotations

from collections.abc import Callable

from simpy.events import Event

from simulator.kernel import Kernel
from simulator.network.flows import Network
from simulator.network.limits import Limits
from simulator.network.ports import Connection, Port

__all__ = ["cores_of", "on_cores", "seat"]


def cores_of(number: float | None) -> Port | None:
    """The pool of so many cores: a port of as many seconds of work a second; none if nodes have cores of their own."""
    return Port("cores", number, Limits(ceiling=1.0)) if number is not None else None


def seat(kernel: Kernel, network: Network, *ports: Port) -> Callable[[float], Event]:
    """How one task works on what it shares with others.

    Parameters
    ----------
    ports
        What it shares: a device, a pool of cores, or both, seconds of work a second each.

    Returns
    -------
    callable
        Given seconds of work, it gives the event of their end. What is asked for before
        that waits: a task does one thing at a time.
    """
    connection = Connection(ports, 0.0)

    def work(work_s: float) -> Event:
        done = kernel.event()
        if work_s > 0:
            network.send(connection, work_s, lambda _: _end(done))
        else:
            done.succeed()
        return done

    return work


def on_cores(kernel: Kernel, network: Network) -> Callable[[float], Event] | None:
    """How a process works on the cores that all share; none if it has one of its own."""
    return seat(kernel, network, network.cores) if network.cores is not None else None


def _end(done: Event) -> None:
    done.succeed()
