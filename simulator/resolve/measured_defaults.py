"""Applies measured defaults (``models/practice.toml``): achieved shares of nominal rates, and host costs of messages if not given.

A cluster that says what sort its links are (``cluster.intra_node.sort = "nvlink"``) gives their nominal bandwidth. Before it is simulated
each is multiplied by the share that software gets of it, with a draw of that share for each replication. Rates that the scenario gives as
achieved (no sort), and values that it sets itself, stay. The constants, and how they are drawn, are in :mod:`simulator.spec.constants`;
here is what each is applied to, by its name.

Where TensorFlow's gRPC carries tensors, hosts work on each tensor and each byte, and a
coordinator takes some time to hand out a step, unless the scenario says how long that takes, or that nothing
is to be added (``cluster.transport.software = "given"``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import NormalDist

from simulator.base.rng import Streams
from simulator.base.text import written
from simulator.scenario import Resolved, Scenario
from simulator.spec.cluster import Cluster, ClusterLink, Link
from simulator.spec.computed import CONSTANTS
from simulator.spec.constants import Known, constants, drawn_values, nominal_values
from simulator.spec.distributions import Normal
from simulator.spec.figures import Assumed
from simulator.spec.training import SLOTS
from simulator.spec.transport import Transport
from simulator.spec.workload import Affine, ServerCost


class AchievedLink(Link):
    """A link with the achieved share of its nominal bandwidth, which is higher if no device computes at the same time."""

    times_alone: float

    @property
    def alone(self) -> Link:
        """The link as transfers find it while no device computes."""
        return Link(bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * self.times_alone, latency_s=self.latency_s)


class AchievedCluster(Cluster):
    """A cluster on which collectives cost compute something, where parameters are shared out."""

    loses: float

    @property
    def overlap_cost(self) -> float:
        """Seconds that compute loses per second of a simultaneous collective."""
        return self.loses


_SHARES = {
    "nvlink": "nvlink_share",
    "pcie": "pcie_share",
    "host-memory": "host_memory_share",
    "rdma": "rdma_share",
    "ethernet": "ethernet_share",
}
_ALONE = {"nvlink": "nvlink_alone_share"}
"""Constants for a link's achieved rate if devices wait for collectives, in place of the rate during kernels."""
COMPUTE, JITTER, LINK, TRAFFIC = "compute times", "jitter of steps", "measured links", "background traffic"
HOSTS = "host cost per tensor", "host cost per byte"
"""Quantities that a replication draws, in a user's words."""
_PASSES, _LINKS = "workload.forward and workload.backward", "cluster, links of sort"
_OF_CONSTANTS = {
    "nvlink_share": ("bandwidth of NVLink", f"{_LINKS} nvlink"),
    "nvlink_alone_share": ("bandwidth of NVLink", f"{_LINKS} nvlink, where tensors are split"),
    "pcie_share": ("bandwidth of PCIe", f"{_LINKS} pcie"),
    "host_memory_share": ("bandwidth through host memory", f"{_LINKS} host-memory"),
    "rdma_share": ("bandwidth of RDMA links", f"{_LINKS} rdma"),
    "ethernet_share": ("bandwidth of Ethernet", f"{_LINKS} ethernet"),
    "ethernet_spread": ("bandwidth of Ethernet", f"{_LINKS} ethernet, where collectives cross it"),
    "overlap_cost": ("compute during collectives", f"{_PASSES}, where parameters are shared out"),
    "straggler_cv": (JITTER, "workload.jitter"),
    "crowding": ("compute next to other busy devices", _PASSES),
    "fixed_part": (COMPUTE, _PASSES),
    "grpc_tensor_s": (HOSTS[0], "cluster.transport"),
    "grpc_byte_s": (HOSTS[1], "cluster.transport"),
    "coordinator_dispatch_s": ("coordinator", "strategy.coordinator"),
    "coordinator_latency_s": ("coordinator", "strategy.coordinator"),
    "server_update_byte_s": ("update on servers", "workload.server"),
}
"""The quantity that each constant is a part of, and what it changes."""
OF_CONSTANTS: Mapping[str, str] = {name: quantity for name, (quantity, _) in _OF_CONSTANTS.items()}
"""The quantity that each constant is a part of."""


def draw_measured_defaults(scenario: Resolved, streams: Streams) -> Resolved:
    """Return what one replication simulates: the scenario with one joint draw of the constants applied."""
    return with_measured_defaults(scenario, drawn_values(scenario.practice, streams)) if _is_felt(scenario) else scenario


def with_nominal_defaults(scenario: Resolved) -> Resolved:
    """The scenario with every constant at its value."""
    return with_measured_defaults(scenario, nominal_values(scenario.practice)) if _is_felt(scenario) else scenario


def assumed_defaults(scenario: Resolved) -> tuple[Assumed, ...]:
    """Return what is applied to a scenario, with each value and where it is from."""
    load = scenario.workload
    computed = load.computed.constants if load.computed is not None and load.is_computed else ()
    return tuple(_assumed(scenario, name) for name in (*computed, *felt_by([scenario])))


def felt_by(scenarios: Iterable[Resolved]) -> tuple[str, ...]:
    """Names of the constants that any of some scenarios depends on."""
    names: dict[str, None] = {}
    for scenario in scenarios:
        lookups = _Lookups(nominal_values(scenario.practice))
        with_measured_defaults(scenario, lookups)
        names |= lookups.names
    return tuple(names)


def with_measured_defaults(scenario: Resolved, values: Mapping[str, float]) -> Resolved:
    """The scenario with achieved rates in place of nominal ones, and with what messages cost hosts.

    Parameters
    ----------
    scenario
        As its file describes it.
    values
        Constants by name.

    Returns
    -------
    Scenario
        One whose links are all of the sort ``given``, and its transport's software too, so that nothing is applied to it a
        second time; the scenario itself where they were before.
    """
    if is_timed_larger(scenario):
        # of which a part stays however small the batch is, and which take as long as before with the batch that was timed
        fixed, timed = min(values["fixed_part"], _MOST_FIXED), scenario.workload.timed_batch or 0.0
        scenario = scenario.replaced(
            {
                f"workload.{name}": Affine(base_s=fixed * cost.per_sample_s * timed, per_sample_s=(1.0 - fixed) * cost.per_sample_s)
                for name, cost in (("forward", scenario.workload.forward), ("backward", scenario.workload.backward))
            }
        )
    if is_nominal(scenario.cluster):
        scenario = _with_shares(scenario, values)
    if is_carried(scenario):
        costs = {f"cluster.transport.{key}": values[name] for key, name in _open_costs(scenario.cluster.transport).items()}
        strategy = scenario.strategy.with_clients(values)
        scenario = scenario.replaced({"cluster.transport.software": "given", **costs, "strategy": strategy})
    if updates_are_open(scenario):  # servers read and write the optimizer's slots
        scenario = scenario.replaced({"workload.server": ServerCost(per_byte_s=2 * _slots(scenario) * values["server_update_byte_s"])})
    return scenario


_MOST_FIXED = 0.95


def is_timed_larger(scenario: Scenario) -> bool:
    """Return whether the only timed step has more samples than a pass, so that the fixed part of a step is unknown."""
    timed = scenario.workload.timed_batch
    return timed is not None and scenario.batch / scenario.training.micro_batches < timed


def _with_shares(scenario: Resolved, values: Mapping[str, float]) -> Resolved:
    cluster, load, strategy = scenario.cluster, scenario.workload, scenario.strategy
    sending = strategy.sending(scenario)
    crossed = {"intra_node": sending.inside_nodes, "host_link": sending.through_host}

    def achieved(link: ClusterLink) -> Link:
        over = crossed.get(link.key, link.joins != "nodes" or scenario.nodes_needed > 1)
        return _achieved(link.link, values if over else None, waits=link.key == "intra_node" and "tensor" in strategy.cuts)

    real = cluster.with_links(achieved)
    if scenario.nodes_needed > 1 and cluster.inter_node.sort == "ethernet":
        slower = 1.0 if scenario.servers else slowest_of(scenario.nodes_needed, values["ethernet_spread"])
        real = real.replaced({"inter_node.bandwidth_bytes_per_s": real.inter_node.bandwidth_bytes_per_s * slower})
        if (cap := cluster.transport.flow_cap_bytes_per_s) is not None:  # of what is on the wire
            real = real.replaced({"transport.flow_cap_bytes_per_s": cap * min(values["ethernet_share"], 1.0) * slower})
    if cluster.protocols.auto is None and cluster.devices_per_node > 1 and cluster.intra_node.sort not in ("given", "nvlink"):
        # NCCL's tuning.cc enables LL128 by itself with NVLink between the devices of a node alone, since elsewhere data may be corrupted
        real = real.replaced({"protocols.auto": ("ll", "simple")})
    if "sharded" in strategy.cuts:
        real = AchievedCluster.model_construct(**dict(real), loses=min(values["overlap_cost"], 1.0))
    changes: dict[str, object] = {"cluster": real}
    if load.jitter.kind == "constant":  # no spread was measured
        changes["workload.jitter"] = Normal(cv=min(values["straggler_cv"], 0.3))
    if min(scenario.ranks, cluster.replicas_per_node) > 1:
        longer = 1.0 + values["crowding"]
        changes |= {"workload.forward": load.forward.times(longer), "workload.backward": load.backward.times(longer)}
    return scenario.replaced(changes)


def slowest_of(count: int, spread: float) -> float:
    """Rate of the slowest of some links over that of the median one, if their logarithms are normal with this standard deviation.

    Expected value of the smallest of ``count`` normal values by Blom, "Statistical Estimates and Transformed Beta-Variables", 1958.
    """
    return math.exp(spread * NormalDist().inv_cdf((1.0 - 0.375) / (count + 0.25)))


def updates_are_open(scenario: Scenario) -> bool:
    """Tell whether servers keep slots of a named optimizer, and nothing says how long an update takes there."""
    return bool(scenario.servers and _slots(scenario) and scenario.workload.server == ServerCost())


def _slots(scenario: Scenario) -> int:
    optimizer = scenario.training.optimizer
    return 0 if optimizer is None else SLOTS[optimizer]


def faster_hosts(scenario: Scenario, factor: float) -> dict[str, Known]:
    """The scenario's own constants, with hosts that work ``factor`` times as fast on what gRPC carries, where nobody gives that."""
    return {**scenario.practice, **{name: cost.times(1.0 / factor) for name, cost in host_costs(scenario).items()}}


def host_costs(scenario: Scenario) -> dict[str, Known]:
    """Return what gRPC costs hosts, by the constant's name: of what the scenario leaves open, its own constants or Paceline's."""
    if not is_carried(scenario):
        return {}
    return {name: scenario.practice.get(name, constants()[name].plain) for name in _open_costs(scenario.cluster.transport).values()}


def _open_costs(transport: Transport) -> dict[str, str]:
    """Keys of what messages cost hosts that are not given, each with its constant."""
    names = {} if transport.cpu_per_message_s else {"cpu_per_message_s": "grpc_tensor_s"}
    return names if transport.copy_per_byte_s or transport.cpu_per_byte_s else {**names, "copy_per_byte_s": "grpc_byte_s"}


def is_carried(scenario: Scenario) -> bool:
    """Tell whether TensorFlow's gRPC carries tensors, so that what it costs hosts is a measured default where it is not given."""
    return (scenario.cluster.transport.software or scenario.strategy.sending(scenario).carrier) == "grpc"


def _is_felt(scenario: Scenario) -> bool:
    return is_nominal(scenario.cluster) or is_carried(scenario) or is_timed_larger(scenario) or updates_are_open(scenario)


def is_nominal(cluster: Cluster) -> bool:
    """Tell whether any link says what sort it is, so that the constants are applied."""
    return any(link.sort != "given" for _, _, link in cluster.links)


def _achieved(link: Link, values: Mapping[str, float] | None, *, waits: bool = False) -> Link:
    """A link with what transfers get of its nominal rate; no values: nothing goes over it.

    ``waits``: over it go collectives, too, that devices wait for, with nothing to compute meanwhile.
    """
    if link.sort == "given":
        return link
    if values is None:
        return link.replaced({"sort": "given"})
    share = min(values[_SHARES[link.sort]], 1.0)
    real = link.replaced({"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s * share, "sort": "given"})
    if waits and link.sort in _ALONE:
        real = AchievedLink.model_construct(**dict(real), times_alone=max(min(values[_ALONE[link.sort]], 1.0) / share, 1.0))
    return real


def _assumed(scenario: Scenario, name: str) -> Assumed:
    own, constant = scenario.practice.get(name), constants()[name]
    known = own or constant
    interval = f" ({written(known.low, 'setting')} to {written(known.high, 'setting')})" if known.low < known.high else ""
    source = "set by the scenario"
    if own is None:
        undetermined = constant.prior.source if name in CONSTANTS else f"no table determines it: {constant.prior.source}"
        source = f"fitted to {', '.join(constant.tables)}" if constant.determined else undetermined
    place = f"{_PASSES}, computed" if name in CONSTANTS else _OF_CONSTANTS[name][1]
    return Assumed(path=place, value=f"{name} {written(known.value, 'setting')}{interval}", reason=f"{constant.meaning}; {source}")


class _Lookups(dict[str, float]):
    """Values that remember which of them were looked up, in that order."""

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.names: dict[str, None] = {}

    def __getitem__(self, name: str) -> float:
        self.names[name] = None
        return super().__getitem__(name)
