"""Simpler rules that the simulation must beat: linear scaling, and one formula of latency and bandwidth."""

from __future__ import annotations

from calibrate.published.scenarios import Situation, element_bytes, pushes
from calibrate.published.tables import Row

__all__ = ["alpha_beta", "linear"]

_LEAST_SHARE = 0.05
"""Of the smallest row's step that counts as compute, whatever the formula says of the rest."""


def linear(smallest: Row, row: Row) -> float:
    """Throughput of the smallest row times the ratio of devices: ideal scaling."""
    return smallest.mean * row.replicas / smallest.replicas * (row.batch_per_replica / smallest.batch_per_replica)


def alpha_beta(situation: Situation, smallest: Row, row: Row) -> float:
    """Throughput of a step of compute and then of communication at the links' nominal rates, nothing overlapped.

    Compute is the step of the smallest row, less the communication that the same formula
    gives for it. A ring all-reduce takes 2 (n - 1) alpha +
    2 (n - 1) / n S / B with the slowest link that it crosses (Patarasuk and Yuan 2009);
    servers that share the variables evenly take 2 alpha + 2 n S / (s B), n workers with s
    servers (Li et al., "Scaling distributed machine learning with the parameter server",
    OSDI 2014).
    """
    # what the smallest row already communicates by the same formula is no compute; none of it is left below nothing
    compute_s = max(smallest.step_s - _communication_s(situation, smallest), _LEAST_SHARE * smallest.step_s)
    compute_s *= row.batch_per_replica / smallest.batch_per_replica
    return float(row.replicas * row.batch_per_replica / (compute_s + _communication_s(situation, row)))


def _communication_s(situation: Situation, row: Row) -> float:
    facts, stack = situation.cluster, situation.stack
    if row.replicas == 1:
        return 0.0
    link = facts.inter_node if row.nodes > 1 else facts.intra_node
    bandwidth = link.bandwidth_bytes_per_s * (facts.nics_per_node if row.nodes > 1 else 1)
    size = sum(tensor.elements for tensor in situation.tensors) * element_bytes(stack) / stack.every
    if not pushes(stack, row):
        turns = 2 * (row.replicas - 1)
        return float(turns * link.latency_s + turns / row.replicas * size / bandwidth)
    workers = row.nodes if stack.worker == "node" else row.replicas
    return float(2 * link.latency_s + 2 * workers * size / ((row.servers or row.nodes) * bandwidth))
