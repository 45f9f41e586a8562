"""Synchronous data parallelism by all-reduce: single, mirrored, multi-worker-mirrored.

Every replica computes forward and backward on its own batch; gradients are fused into
buckets in the order in which they become ready (Li et al., "PyTorch Distributed", VLDB
2020, section 3.2.2; TensorFlow's ``bytes_per_pack``), each bucket is all-reduced while
the backward pass goes on, and every replica applies the same mean. One replica alone has
nothing to reduce.
"""

from __future__ import annotations

from collections.abc import Generator

from simpy.events import Event

from simulator.collective import AllReduce, RingOfMessages, RingOfTimes
from simulator.fusion import buckets
from simulator.kernel import Kernel
from simulator.network import Network
from simulator.ports import leave_out_ample
from simulator.recorder import Recorder
from simulator.records import Update
from simulator.replica import Replica
from simulator.scenario import Scenario
from simulator.strategy import Mirrored, MultiWorkerMirrored
from simulator.topology import Topology

__all__ = ["AllReduceTraining"]


class AllReduceTraining:
    """Wires replicas and a ring together and starts them."""

    def __init__(self, kernel: Kernel, network: Network, scenario: Scenario, replicas: list[Replica], recorder: Recorder) -> None:
        strategy = scenario.strategy
        ring = strategy if isinstance(strategy, (Mirrored, MultiWorkerMirrored)) else None
        ranks = len(replicas)
        topology = Topology(scenario)
        self._kernel = kernel
        self._recorder = recorder
        self._buckets = buckets(scenario.workload, scenario.batch, ring.bucket_size_bytes if ring else None, ranks)
        self._applied = 0  # updates of replica 0's copy
        self._last_backward_s: dict[int, float] = {}
        self._steps = scenario.run.steps
        self._all_reduce: AllReduce | None = None
        if ranks > 1:
            hops = [topology.between_replicas(rank, (rank + 1) % ranks) for rank in range(ranks)]
            leave_out_ample(hops)
            sizes = [size for _, size in self._buckets]
            if ring and ring.messages:
                self._all_reduce = RingOfMessages(kernel, network, hops, sizes, recorder.observer)
            else:
                self._all_reduce = RingOfTimes(kernel, hops, sizes)
        recorder.watch("devices", [replica.device for replica in replicas])
        recorder.watch("links", topology.ports)
        for replica in replicas:
            kernel.start(f"replica {replica.index}", self._train(replica))

    def _train(self, replica: Replica) -> Generator[Event, None, None]:
        kernel, ring, rank = self._kernel, self._all_reduce, replica.index
        if replica.start_s:
            yield kernel.timeout(replica.start_s)
        for step in range(self._steps):
            start_s = kernel.now
            batch = replica.next_batch()
            if batch is not None:
                yield batch
            input_s = kernel.now - start_s
            factor = next(replica.factors)
            finished = ring.finished(rank) if ring else None
            done = 0.0
            for number, (ready, _) in enumerate(self._buckets):
                work_s = (ready - done) * replica.backward_s + (0.0 if number else replica.forward_s)
                yield replica.compute(work_s * factor, "backward" if number else "forward and backward")
                done = ready
                if ring:
                    ring.ready(rank, number)
            backward_end_s = kernel.now
            self._last_backward_s[step] = max(backward_end_s, self._last_backward_s.get(step, 0.0))
            waiting_s = 0.0
            if finished is not None:
                yield finished
                waiting_s = self._last_backward_s[step] - backward_end_s
            apply_start_s = kernel.now
            yield replica.compute(replica.apply_s * factor, "apply")
            self._end_step(replica, step, start_s, input_s, backward_end_s - start_s - input_s, waiting_s, kernel.now - apply_start_s)

    def _end_step(
        self, replica: Replica, step: int, start_s: float, input_s: float, compute_s: float, waiting_s: float, apply_s: float
    ) -> None:
        self._last_backward_s.pop(step - 2, None)
        # all replicas apply the same update, each to its own copy; it is counted once
        update = Update(0, start_s, self._kernel.now, step, self._applied, ()) if replica.index == 0 else None
        if update is not None:
            self._applied += 1
        self._recorder.step(replica.index, start_s, input_s, compute_s, waiting_s, apply_s, update)
