"""Interface between a strategy and its scenario: what a strategy can ask, and its answers on the placement of processes and models.

Strategies are below :mod:`simulator.scenario`, which imports them. So what they need of a scenario is written down here, as the
protocol :class:`Setup`, which ``Scenario`` fulfils. The questions that a strategy itself is asked are in strategy.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.base.rng import Streams
from simulator.spec.cluster import Cluster
from simulator.spec.distributions import Distribution
from simulator.spec.figures import Exchange
from simulator.spec.input_pipeline import InputPipeline, InputWork
from simulator.spec.training import Training
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    from simulator.strategies.strategy import Strategy


class Length(Protocol):
    """How long a training is simulated, as far as a strategy asks."""

    @property
    def steps(self) -> int:
        """Steps of each worker."""

    @property
    def warmup(self) -> int:
        """Of these the first that are not measured."""

    @property
    def sharing(self) -> Literal["shared", "each-its-own"]:
        """Tell whether workers share the steps of a job."""

    def total_steps(self, replicas: int) -> int:
        """Steps of all replicas together."""

    @property
    def drain(self) -> bool:
        """Return whether only the job's steps are handed out."""

    @property
    def detail(self) -> Literal["auto", "at-once", "messages"]:
        """How all-reduces are simulated."""

    @property
    def grouping(self) -> Literal["none", "per-server"]:
        """Return what travels as one between workers and servers."""


class Setup(Protocol):
    """The scenario as seen by its strategy."""

    @property
    def workload(self) -> Workload:
        """Return what a step costs."""

    @property
    def cluster(self) -> Cluster:
        """Where it runs."""

    @property
    def run(self) -> Length:
        """How long."""

    @property
    def training(self) -> Training:
        """Micro-batches, and what is computed again."""

    @property
    def input(self) -> InputPipeline | None:
        """The pipeline that prepares batches; none: the workload says what a batch takes."""

    @property
    def input_work(self) -> InputWork | None:
        """Return what it does for a batch in the epochs that are simulated."""

    @property
    def strategy(self) -> Strategy:
        """How it is trained."""

    @property
    def batch(self) -> int:
        """Samples that each replica takes a step."""

    @property
    def layout(self) -> Layout:
        """Where the strategy's processes sit on this cluster."""

    @property
    def rank_messages(self) -> bool:
        """Tell whether every message of an all-reduce is simulated."""

    @property
    def follows_trace(self) -> bool:
        """Tell whether what others take from links that ranks may use changes while it runs."""

    @property
    def reads_share_links(self) -> bool:
        """Tell whether what pipelines read crosses the links between nodes, which collectives use too."""

    @property
    def hosts_share_cores(self) -> bool:
        """Tell whether hosts' work on messages between nodes waits for cores that all share."""


class Layout(NamedTuple):
    """Where the processes of a training sit.

    Replica r sits on node ``r // replicas_per_node``. Servers on nodes of their own come
    after the workers' nodes, or server i sits on worker node i; the client that feeds all
    workers has the last node.

    Attributes
    ----------
    replicas
        Copies of the model that train.
    replicas_per_node
        Of them, on one node at most.
    replicas_per_process
        Replicas that one worker process drives.
    servers
        Parameter servers.
    servers_beside
        Whether they sit on the workers' nodes.
    client
        Whether one client feeds all workers.
    one_process
        Whether one process drives all replicas, so that these are what is counted as workers.
    ranks_per_replica
        Parts that each copy of the model is cut into, each on a device of its own; 1: a replica is a rank. Then what is said of
        replicas above but for their number holds for ranks.
    """

    replicas: int
    replicas_per_node: int
    replicas_per_process: int
    servers: int = 0
    servers_beside: bool = False
    client: bool = False
    one_process: bool = False
    ranks_per_replica: int = 1

    @property
    def ranks(self) -> int:
        """Who makes steps: each is one device's part in the job, a copy of the model or a part of one."""
        return self.replicas * self.ranks_per_replica

    @property
    def processes(self) -> int:
        """Worker processes."""
        return -(-self.ranks // self.replicas_per_process)

    @property
    def workers(self) -> int:
        """How many train, as the strategy counts them: processes, or the replicas of the one process that drives all."""
        return self.replicas if self.one_process else self.processes

    @property
    def worker_nodes(self) -> int:
        """Nodes that hold replicas."""
        return -(-self.ranks // self.replicas_per_node)

    @property
    def server_nodes(self) -> int:
        """Nodes that hold parameter servers and nothing else, where servers have nodes of their own."""
        return 0 if self.servers_beside else self.servers

    @property
    def nodes(self) -> int:
        """Nodes that replicas, servers and the client take together."""
        beside = self.servers if self.servers_beside else 0
        return max(self.worker_nodes, beside) + self.server_nodes + int(self.client)

    @property
    def client_node(self) -> int | None:
        """The node of the client; none where there is no client."""
        return self.nodes - 1 if self.client else None

    def node_of(self, replica: int) -> int:
        """The node that a replica sits on."""
        return replica // self.replicas_per_node

    def node_of_server(self, server: int) -> int:
        """The node that a parameter server sits on."""
        return server if self.servers_beside else self.worker_nodes + server


class InCommon(NamedTuple):
    """Variation of steps shared by groups of ranks: one draw per group, step and source of variation.

    Attributes
    ----------
    distribution
        Of each draw, whatever its mean.
    weights
        Of each group, how much each of its draws counts; they add up to 1.
    group
        Of each rank, shape (ranks,); -1: none.
    share
        Of each rank's step, what is multiplied by its group's draws over their mean, shape (ranks,).
    """

    distribution: Distribution
    weights: tuple[tuple[float, ...], ...]
    group: NDArray[np.int64]
    share: NDArray[np.float64]


class StageOf(NamedTuple):
    """Assignment of a stage of a pipeline.

    Attributes
    ----------
    layers
        Of each part of the model that it has, the first and the last layer in words.
    layer_count
        How many.
    devices
        Of all copies together.
    parameter_bytes
        Of its layers, in one copy of the model.
    delay
        Updates by which its gradients are late.
    """

    layers: str
    layer_count: int
    devices: int
    parameter_bytes: float
    delay: int = 0


class Bubble(NamedTuple):
    """Causes that keep the stages of a pipeline from computing.

    Attributes
    ----------
    share
        Of a step, where its stages are balanced and messages take no time.
    because
        Why, as the rest of a sentence.
    fuller, evener
        What would make it smaller; what would where one stage is slower than the others.
    """

    share: float
    because: str
    fuller: str
    evener: str


class ModelParallel:
    """How a copy of the model lies on devices: here whole copies, each on a device of its own.

    Parameters
    ----------
    setup
        What is trained, and where.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    @property
    def in_words(self) -> str:
        """The layout; empty where each device has a whole copy."""
        return ""

    @property
    def stages(self) -> tuple[StageOf, ...]:
        """Return what each stage of the pipeline is given, as many as the program has routines; empty where there is none."""
        return ()

    @property
    def bubble(self) -> Bubble | None:
        """Return what keeps the stages from computing; none where there are none."""
        return None

    def copies(self) -> NDArray[np.int64]:
        """The copy of the model that each rank is of, shape (ranks,)."""
        return np.arange(self._setup.layout.ranks)

    def exchanges(self, streams: Streams) -> tuple[Exchange, ...]:  # noqa: ARG002
        """Return what devices that hold one model, or its state, together exchange in a step; empty where each has all of it."""
        return ()

    def name_of_rank(self, rank: int) -> str:  # noqa: ARG002
        """Return what a rank is called in traces and on timelines; empty: only by its number."""
        return ""

    def ranks_beside(self, rank: int) -> Sequence[int]:  # noqa: ARG002
        """The ranks that the stages of a rank's copy of the model are on, itself included, in their order; empty without stages."""
        return ()


class Together(NamedTuple):
    """Devices that are simulated as one.

    Attributes
    ----------
    devices
        How many are one.
    in_step
        Whether they go through each step together, so that their links and their work are taken together; else they sum their
        gradients, which their worker pushes as one.
    strategy
        The same training, with one device in place of each group of them.
    """

    devices: int
    in_step: bool
    strategy: Strategy
