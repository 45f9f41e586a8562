"""``gossip``: decentralised training, in which each worker averages its variables with two neighbours of a circle.

D-PSGD: Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?",
NeurIPS 2017, algorithm 1. In each step a worker sends its variables to its neighbours and
computes a gradient meanwhile; when it has its neighbours' variables it takes the mean of
all three and applies its gradient to it. It waits for two others, never for all, so that
one slow step holds up neighbours first, and the far side of the circle only n/2 steps
later. docs/extend.md quotes code of this file: change both together
(tests/packaging/test_adding_a_strategy.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from simulator.base.records import OWN, PEER, Place
from simulator.base.rng import Streams
from simulator.program.program import Operation, Program, Routine, Rules
from simulator.program.wiring import Wiring
from simulator.spec.cluster import Cluster
from simulator.strategies.assembling import assembled, pace_together, seats
from simulator.strategies.holding import Held
from simulator.strategies.setup import Layout, Setup
from simulator.strategies.strategy import Count, Pace, StepExchange, Strategy, check_workers, filled


class Gossip(Strategy):
    """Decentralised training (D-PSGD): each worker averages its variables with two neighbours, every step."""

    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"gossip": {"kind": "gossip"}}

    kind: Literal["gossip"] = Field(default="gossip", description="this strategy")
    workers: Count | None = Field(default=None, description="workers in a ring; left out: as many as fill the cluster")

    # -- layout and rules ------------------------------------------------------------

    def layout(self, cluster: Cluster) -> Layout:
        """Workers of one device each fill node after node."""
        return filled(cluster, self.workers)

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if it is not known how many workers there are."""
        check_workers(cluster, self.workers)

    # -- what a step does ------------------------------------------------------------

    def program(self, setup: Setup, streams: Streams) -> Program:
        """Send to both neighbours, compute meanwhile, receive from both, apply."""
        cluster, workers = setup.cluster, setup.layout.replicas
        wiring = Wiring(cluster, streams, device_pace=pace_together(setup))
        worker = np.arange(workers)
        sides = np.array([(worker + way) % workers for way in _ways(workers)], dtype=np.int64).reshape(-1, workers)
        path = np.array([wiring.between_replicas(worker, other) for other in sides], dtype=np.int64).reshape(-1, workers)
        routine = _routine(setup.workload.parameter_bytes, len(sides))
        rules = Rules(steps_each=setup.run.steps)
        slowdown = None if workers > 1 else 0.0  # one alone has nothing to communicate
        return assembled(setup, wiring, "worker", routine, rules, seats(setup, wiring), path.T, sides.T, slowdown=slowdown)

    @property
    def pace(self) -> Pace:
        """A worker waits for its two neighbours, and for nobody else."""
        return Pace(waits_for=3)

    def held(self, setup: Setup) -> tuple[tuple[Held, ...], ...]:
        """A worker's device has its own variables and those of its neighbours, of which it takes the mean."""
        return ((Held(versions=1 + len(_ways(setup.layout.replicas))),),)

    # -- estimates -------------------------------------------------------------------

    def exchange(self, setup: Setup) -> StepExchange:
        """All variables to each neighbour, during its compute."""
        link, messages = setup.cluster.inter_node, self.messages_a_step(setup)
        sent_bytes = messages * setup.workload.parameter_bytes * setup.cluster.transport.wire_bytes_per_byte
        return StepExchange((sent_bytes / link.bandwidth_bytes_per_s + link.latency_s,) if messages else (), hidden=True)

    def messages_a_step(self, setup: Setup) -> int:
        """One to each neighbour."""
        return len(_ways(setup.layout.replicas))

    def message_bytes(self, setup: Setup) -> Sequence[float]:
        """All variables, to each neighbour."""
        return [setup.workload.parameter_bytes] * self.messages_a_step(setup)

    # -- names -----------------------------------------------------------------------

    @property
    def in_words(self) -> str:
        """Without its number of workers."""
        return "gossip with two neighbours"


def _ways(workers: int) -> tuple[int, ...]:
    """Offsets along the circle to a worker's neighbours: two, or fewer if there are fewer than three workers."""
    return (-1, 1)[: max(min(workers - 1, 2), 0)]


def _routine(size_bytes: float, neighbours: int) -> Routine:
    """Whatever is sent one way along the circle comes from the other."""
    operations = [Operation(kind="gate", name="turn"), Operation(kind="gate", name="input", after=(0,))]
    for way in range(neighbours):
        send = Operation(kind="send", name="variables", number=way, after=(1,), slot=way, size_bytes=size_bytes,
                         source=Place("device", OWN), target=Place("device", PEER), departs=True, lands=True, channel=way)  # fmt: skip
        operations.append(send)
    computed = len(operations)
    operations.append(Operation(kind="compute", name="forward and backward", after=(1,), forward=1.0, backward=1.0))
    received = [Operation(kind="receive", name="variables", number=way, after=(computed,), channel=way) for way in range(neighbours)]
    operations += received
    last = len(operations)
    operations.append(Operation(kind="compute", name="apply", after=tuple(range(computed + 1, last)), apply=1.0))
    return Routine(tuple(operations))
