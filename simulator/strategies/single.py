"""``single``: one replica on one device, with nothing to communicate; the step is that of all_reduce.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from simulator.base.rng import Streams
from simulator.program.program import Program
from simulator.spec.cluster import Cluster
from simulator.strategies.all_reduce import program_together
from simulator.strategies.setup import Layout, Setup
from simulator.strategies.strategy import SOFTWARE, Software, Strategy


class Single(Strategy):
    """One replica on one device, nothing to communicate: ``tf.distribute.get_strategy()``."""

    count_key: ClassVar[str] = ""
    link: ClassVar[Literal["intra_node", "inter_node", ""]] = ""
    short_names: ClassVar[Mapping[str, Mapping[str, Any]]] = {"single": {"kind": "single"}}

    kind: Literal["single"] = Field(default="single", description="this strategy")

    def layout(self, cluster: Cluster) -> Layout:
        """One replica, one process."""
        return Layout(replicas=1, replicas_per_node=cluster.replicas_per_node, replicas_per_process=1)

    def program(self, setup: Setup, streams: Streams) -> Program:
        """Compute, and apply."""
        return program_together(setup, streams)

    @property
    def software(self) -> tuple[Software, ...]:
        """Any."""
        return tuple(SOFTWARE)

    @property
    def in_words(self) -> str:
        """Without its number of workers, which is one."""
        return "single device"
