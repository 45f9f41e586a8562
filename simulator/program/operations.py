"""What a collective can do, by which algorithms, and which libraries have them.

Names of algorithms stand as text in ``simulator.collectives.factory`` too, those of all-reduces also
in ``Algorithm`` of ``simulator.strategies.all_reduce``. ``Operation`` of program.py is something else:
what a rank does in a step.

Sizes are those of NCCL's own tests (``nccl-tests``, ``PERFORMANCE.md``): ``size_bytes`` is
the larger of what a rank puts in and what it gets out.

==============  ===========================================  ==========================================
operation       a rank puts in                               and gets out
==============  ===========================================  ==========================================
all-reduce      a buffer                                     the sum of all
reduce-scatter  a buffer                                     its part of the sum, 1/n
all-gather      its part, 1/n                                all parts
broadcast       the root: a buffer                           the root's buffer
reduce          a buffer                                     the root: the sum of all
all-to-all      a buffer with a part for each rank           the parts that all have for it
==============  ===========================================  ==========================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Operation = Literal["all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all"]
Library = Literal["nccl", "mpi", "gloo", "tensorflow", "horovod"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Which libraries carry out an operation by an algorithm, and where one can read that."""

    libraries: frozenset[Library]
    source: str


def _in(source: str, *libraries: Library) -> Origin:
    return Origin(frozenset(libraries), source)


_NCCL_TABLE = "NCCL's algos_of_coll in src/device/generate.py"

ALGORITHMS: dict[tuple[Operation, str], Origin] = {
    ("all-reduce", "ring"): _in(
        f"{_NCCL_TABLE}; Open MPI's coll_base_allreduce.c; Gloo's docs/algorithms.md (allreduce_ring_chunked); "
        "TensorFlow's ring_reducer.cc",
        "nccl", "mpi", "gloo", "tensorflow",
    ),
    ("all-reduce", "bidirectional-ring"): _in("none of these libraries: two rings of opposite directions, each with half of the buffer"),
    ("all-reduce", "halving-doubling"): _in(
        "Thakur, Rabenseifner and Gropp, IJHPCA 2005 (MPICH); Gloo's docs/algorithms.md (allreduce_halving_doubling)", "mpi", "gloo"
    ),
    ("all-reduce", "double-binary-tree"): _in(f"{_NCCL_TABLE} (TREE, since NCCL 2.4)", "nccl"),
    ("all-reduce", "hierarchical"): _in("Horovod's HOROVOD_HIERARCHICAL_ALLREDUCE (nccl_operations.cc)", "horovod"),
    ("all-reduce", "reduce-to-one-device"): _in("tf.distribute.ReductionToOneDevice", "tensorflow"),
    ("all-reduce", "hierarchical-copy"): _in("tf.distribute.HierarchicalCopyAllReduce", "tensorflow"),
    ("all-reduce", "sharp"): _in(
        "NCCL's COLLNET_DIRECT and COLLNET_CHAIN (src/transport/coll_net.cc) with NVIDIA's nccl-rdma-sharp-plugins; HPC-X's HCOLL and UCC",
        "nccl", "mpi",
    ),
    ("all-reduce", "nvls"): _in(f"{_NCCL_TABLE} (NVLS since NCCL 2.17, NVLSTree since 2.18; Hopper and later)", "nccl"),
    ("reduce-scatter", "ring"): _in(f"{_NCCL_TABLE}; Open MPI's coll_base_reduce_scatter.c", "nccl", "mpi"),
    ("reduce-scatter", "bidirectional-ring"): _in("none of these libraries"),
    ("all-gather", "ring"): _in(
        f"{_NCCL_TABLE}; Gloo's docs/algorithms.md (allgather_ring); TensorFlow's ring_gatherer.cc; Thakur et al. 2005",
        "nccl", "mpi", "gloo", "tensorflow",
    ),
    ("all-gather", "bidirectional-ring"): _in("none of these libraries"),
    ("broadcast", "ring"): _in(f"{_NCCL_TABLE}: a chain from the root, src/device/broadcast.h; Open MPI's pipeline", "nccl", "mpi"),
    ("reduce", "ring"): _in(f"{_NCCL_TABLE}: a chain to the root, src/device/reduce.h; Open MPI's pipeline", "nccl", "mpi"),
    ("all-to-all", "direct"): _in(
        "ncclSend and ncclRecv to and from all others in one group: NCCL's user guide, Point-to-point communication; "
        "MPICH's isend and irecv (Thakur et al. 2005)",
        "nccl", "mpi",
    ),
}  # fmt: skip
"""By operation and name of the algorithm. NCCL's PAT, and its NVLS of other operations than all-reduce, are not modelled."""


def algorithms_of(operation: Operation, library: Library | None = None) -> tuple[str, ...]:
    """Names of the algorithms for an operation; of one library, or of all."""
    return tuple(
        name for (does, name), origin in ALGORITHMS.items() if does == operation and (library is None or library in origin.libraries)
    )
