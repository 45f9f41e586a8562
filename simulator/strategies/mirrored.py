"""``mirrored`` (MirroredStrategy): the devices of one node, driven by one process, all-reduce.

Here are its keys and its layout; the step is that of all_reduce.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from simulator.spec.cluster import Cluster
from simulator.strategies.all_reduce import AllReduceStrategy
from simulator.strategies.setup import Layout
from simulator.strategies.strategy import Count, Software


class Mirrored(AllReduceStrategy):
    """``tf.distribute.MirroredStrategy``: all-reduce among the devices of one node."""

    count_key: ClassVar[str] = "replicas"
    link: ClassVar[Literal["intra_node", "inter_node", ""]] = "intra_node"
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"mirrored": {"kind": "mirrored"}}

    kind: Literal["mirrored"] = Field(default="mirrored", description="this strategy")
    replicas: Count | None = Field(
        default=None, description="replicas, each on a device of the one node; left out: all that the node takes"
    )

    def layout(self, cluster: Cluster) -> Layout:
        """One process drives all replicas."""
        replicas = self.replicas or cluster.replicas_per_node
        return Layout(replicas=replicas, replicas_per_node=cluster.replicas_per_node, replicas_per_process=replicas, one_process=True)

    def check_layout(self, cluster: Cluster) -> None:
        """Raise ValueError if one node does not take all replicas."""
        replicas = self.layout(cluster).replicas
        if replicas > cluster.replicas_per_node:
            raise ValueError(
                f"strategy.replicas ({replicas}) must be at most the {cluster.replicas_per_node} that one node takes "
                "(cluster.devices_per_node x cluster.replicas_per_device); over several nodes use multi-worker-mirrored"
            )

    @property
    def software(self) -> tuple[Software, ...]:
        """As of other all-reduces; ``fit`` of Keras 3 runs it too."""
        able = super().software
        return ("keras", *able) if "tensorflow" in able else able

    @property
    def in_words(self) -> str:
        """The algorithm, and that it stays in one node."""
        return f"{self.way} in one node{self._local}"

    def title(self, *, servers: bool = True) -> str:  # noqa: ARG002
        """What a curve is called."""
        return f"Mirrored ({self.algorithm.replace('-', ' ')} in one node)"
