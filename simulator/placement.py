"""Which parameter server holds which variable."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.workload import Variable

__all__ = ["place"]


def place(variables: Sequence[Variable], servers: int, how: str) -> list[int]:
    """Server of each variable, in the order given.

    Variables are placed in the order in which the model created them: in turn
    (``tf.compat.v1.train.replica_device_setter``'s and ParameterServerStrategy's
    default), or each on the server with the fewest bytes so far, the first of equals
    (``tf.contrib.training.GreedyLoadBalancingStrategy`` with ``byte_size_load_fn``).
    """
    created = sorted(range(len(variables)), key=lambda index: variables[index].creation_index)
    chosen = [0] * len(variables)
    load = [0.0] * servers
    for turn, index in enumerate(created):
        server = turn % servers if how == "round-robin" else load.index(min(load))
        chosen[index] = server
        load[server] += variables[index].size_bytes
    return chosen
