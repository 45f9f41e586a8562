"""Which ports a path crosses, what they carry, and how leaves and spines share: by hand."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from support.networks import Messages, wiring_of
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.program.port_names import Owner, PortKind, PortName
from simulator.program.wiring import Wiring
from simulator.scenario import Scenario

LINK = {"bandwidth_bytes_per_s": 10.0, "latency_s": 1.0}


def scenario(cluster: dict, **strategy):
    """Eight replicas unless the strategy says otherwise."""
    chosen = {"kind": "multi-worker-mirrored", "workers": 8} | strategy
    table = scenario_table(cluster={"inter_node": LINK, **cluster}, strategy=chosen)
    table["workload"]["input_bytes_per_sample"] = 10.0
    return scenario_from_table(table, "test")


def at(*numbers: int) -> np.ndarray:
    return np.array(numbers)


class Connection(NamedTuple):
    """A path: its ports in order, by name, with their capacities; the hosts at its ends, by name."""

    ports: dict[str, float]
    latency_s: float
    hosts: list[str]
    asked_for: bool


def connections(wiring: Wiring) -> list[Connection]:
    """All that were laid."""
    ports, _, paths, hosts = wiring.tables()
    names = [str(name) for name in ports.names]
    assert len(set(names)) == len(names)  # so that they tell ports apart
    ends = np.stack([paths.source, paths.target], axis=1).tolist()
    return [
        Connection(
            {names[port]: float(ports.capacity[port]) for port in paths.port[paths.first[number] : paths.first[number + 1]]},
            float(paths.latency_s[number]),
            [str(hosts.names[host]) for host in ends[number] if host >= 0],
            bool(paths.asked_for[number]),
        )
        for number in range(len(paths))
    ]


def between(built: Scenario, *pairs: tuple[int, int], replication: int = 0) -> list[Connection]:
    """Connections between replicas."""
    wiring = wiring_of(built, replication)
    wiring.between_replicas(*np.array(pairs).T)
    return connections(wiring)


def test_between_nodes():
    path, other = between(scenario({}), (2, 5), (2, 6))
    assert path.ports == {"node 2 out": 10.0, "node 5 in": 10.0}
    assert path.latency_s == 1.0
    assert not path.hosts  # a transport that adds nothing costs nothing
    assert list(other.ports) == ["node 2 out", "node 6 in"]


def test_what_a_protocol_adds_to_the_latency():
    wiring = wiring_of(scenario({}))
    assert wiring.between_replicas(at(0, 1), at(1, 0), at(0.5, 2.0)).tolist() == [0, 1]
    assert wiring.between_replicas(at(0), at(1)).tolist() == [2]
    assert [connection.latency_s for connection in connections(wiring)] == [1.5, 3.0, 1.0]


def test_numbers_of_links_stay_when_paths_are_laid():
    """What was counted on a link stays its own; caps of single connections stand behind the links."""
    wiring = wiring_of(scenario({"transport": {"discipline": "weighted", "weight_sigma": 0.5, "flow_cap_bytes_per_s": 3.0}}))
    wiring.between_replicas(at(0, 1), at(1, 2))
    before, links, *_ = wiring.tables()
    wiring.between_replicas(at(2, 0), at(0, 1))
    after, more, *_ = wiring.tables()
    assert before.names[:links] == after.names[:links]
    assert list(map(str, after.names))[:links] == ["node 0 out", "node 1 in", "node 1 out", "node 2 in"]
    assert list(map(str, after.names[links:more])) == ["node 2 out", "node 0 in"]
    assert (len(before.names) - links, len(after.names) - more) == (2, 4)


def test_several_nics_and_classes_of_nodes():
    classes = [{"name": "slow", "nodes": 3, "inter_node": {"bandwidth_bytes_per_s": 2.0, "latency_s": 3.0}}, {"name": "fast", "nodes": 2}]
    (path,) = between(scenario({"node_classes": classes, "nics_per_node": 4}), (2, 3))
    assert list(path.ports.values()) == [8.0, 40.0]
    assert path.latency_s == 3.0  # the larger of the two


RAILS = {"devices_per_node": 4, "nics_per_node": 4, "rails": 2}


def test_others_take_their_part_of_each_rail():
    whole, some = (
        dict(port for path in between(scenario({**RAILS, **more}), (0, 4), (1, 5), (2, 6), (3, 7), (8, 4)) for port in path.ports.items())
        for more in ({}, {"background": {"load": 0.25, "nodes": [1]}})
    )
    assert set(whole) == {f"node {node} rail {rail} {way}" for node, way in ((0, "out"), (1, "in")) for rail in (0, 1)} | {
        "node 2 rail 0 out"
    }
    assert some == {name: its * (0.75 if name.startswith("node 1") else 1.0) for name, its in whole.items()}


def test_others_use_the_leaf_of_each_rail_and_links_between_islands():
    fabric = {"nodes_per_leaf": 2, "rail_optimised": True}
    on = {"background": {"load": 0.25, "on": "fabric", "nodes": [3]}}
    found = {
        name: capacity / plain.ports[name]
        for path, plain in zip(
            *(between(scenario({**RAILS, "fabric": fabric, **more}), (0, 8), (2, 14), (8, 16)) for more in (on, {})), strict=True
        )
        for name, capacity in path.ports.items()
    }
    taken = {name for name, share in found.items() if share == 0.75}
    assert taken == {"leaf 2 down from spine 0", "leaf 3 down from spine 0", "leaf 2 up to spine 0"}
    islands = {"devices_per_node": 4, "islands": {"devices": 2, "between": {"bandwidth_bytes_per_s": 8.0}}}
    (path,) = between(scenario({**islands, "background": {"load": 0.25, "on": "intra-node"}}), (0, 2))
    assert path.ports == {"device 0 out to other islands": 6.0, "device 2 in from other islands": 6.0}


def test_servers_and_the_client_have_nodes_after_the_workers():
    wiring = wiring_of(scenario({}, kind="parameter-server", mode="sync", workers=3, servers=1, replication="in-graph"))
    wiring.to_server(at(2), at(0))
    wiring.from_server(at(0), at(2))
    wiring.from_client(at(1))
    there, back, batch = connections(wiring)
    assert list(there.ports) == ["node 2 out", "server node 0 in"]
    assert list(back.ports) == ["server node 0 out", "node 2 in"]
    assert list(batch.ports) == ["client node out", "node 1 in"]
    assert (there.asked_for, back.asked_for, batch.asked_for) == (False, True, False)
    assert wiring.node_of_server(at(0)) == 3


def test_inside_a_node_by_a_switch_or_by_links_between_every_two():
    cluster = {"devices_per_node": 4, "intra_node": {"bandwidth_bytes_per_s": 5.0, "latency_s": 0.5}}
    assert list(between(scenario(cluster), (4, 6))[0].ports) == ["device 4 out", "device 6 in"]
    there, back, other, apart = between(scenario({**cluster, "intra_node_topology": "mesh"}), (4, 6), (6, 4), (4, 7), (3, 4))
    assert there.ports == {"device 4 to device 6": 5.0}
    assert list(back.ports) == ["device 6 to device 4"]
    assert list(other.ports) == ["device 4 to device 7"]
    assert there.latency_s == 0.5
    assert list(apart.ports) == ["node 0 out", "node 1 in"]


def test_host_links():
    link = {"bandwidth_bytes_per_s": 7.0, "latency_s": 0.25}
    shared = wiring_of(scenario({"devices_per_node": 4, "host_link": link, "devices_per_host_link": 2}))
    shared.to_device(at(3, 2, 1, 5))
    shared.from_device(at(3))
    down, beside, before, after, up = connections(shared)
    assert (down.ports, up.ports) == ({"host link 1 to device": 7.0}, {"host link 1 from device": 7.0})
    assert down.latency_s == 0.25
    assert down.ports == beside.ports != before.ports
    assert list(after.ports) == ["host link 2 to device"]  # the first of node 1
    own = wiring_of(scenario({"devices_per_node": 4, "replicas_per_device": 2, "host_link": link}))
    own.to_device(at(0, 1, 2))
    first, second, third = connections(own)
    assert first.ports == second.ports  # two replicas of one device
    assert first.ports != third.ports


FABRIC = {"fabric": {"nodes_per_leaf": 2, "oversubscription": 4.0, "spines": 2, "latency_s": 0.5}}


def test_leaves_and_spines():
    inside, across = between(scenario(FABRIC), (0, 1), (1, 6))
    assert list(inside.ports) == ["node 0 out", "node 1 in"]
    assert inside.latency_s == 1.0
    _, up, down, _ = across.ports
    assert (up[:-1], down[:-1]) == ("leaf 0 up to spine ", "leaf 3 down from spine ")
    assert up[-1] == down[-1]
    # 2 nodes x 10 / 4 leave a leaf, half of it by each spine
    assert list(across.ports.values()) == [10.0, 2.5, 2.5, 10.0]
    assert across.latency_s == 1.5


def test_flows_share_a_leafs_links():
    """One spine of 2 x 10 / 4 = 5 bytes/s. Two flows leave leaf 0, one of them for a leaf that a third also goes to."""
    one_spine = {"fabric": {"nodes_per_leaf": 2, "oversubscription": 4.0}, "inter_node": {"bandwidth_bytes_per_s": 10.0}}
    messages = Messages(scenario(one_spine))
    for source, target, size in ((0, 2, 5.0), (1, 4, 10.0), (6, 5, 15.0), (2, 3, 10.0)):
        messages.send(f"{source} to {target}", source, target, size)
    # leaf 0 up: 2.5 each until 2 s; leaf 2 down: 2.5 and 2.5. 2 to 3 stays on its leaf: 10.
    # from 2 s on 1 to 4 has 5 bytes left, 6 to 5 has 10, and leaf 2's 5 bytes/s are theirs: until 4 s, then the last 5 alone
    assert messages.run() == {"2 to 3": 1.0, "0 to 2": 2.0, "1 to 4": 4.0, "6 to 5": 5.0}


def test_routes_are_spread_evenly_and_stay_when_workers_come():
    fabric = {"fabric": {"nodes_per_leaf": 1, "spines": 4}}

    def routes(workers: int, replication: int = 0) -> dict[tuple[int, int], str]:
        pairs = [(source, target) for source in range(workers) for target in range(workers) if source != target]
        laid = between(scenario(fabric, workers=workers), *pairs, replication=replication)
        return {pair: list(connection.ports)[1][-1] for pair, connection in zip(pairs, laid, strict=True)}

    few, many = routes(8), routes(40)
    assert few.items() <= many.items()
    assert few == routes(8)
    assert few != routes(8, replication=1)
    used = Counter(many.values())
    # 1,560 routes over 4 spines: each has 390 +- 17
    assert len(used) == 4
    assert all(abs(count - 390) < 4 * 17 for count in used.values())


def test_a_servers_routes_stay_when_its_node_moves():
    """More workers push a server to a later node, and so to another leaf; its spines stay."""
    fabric = {"fabric": {"nodes_per_leaf": 1, "spines": 8}}

    def spines(workers: int) -> list[str]:
        wiring = wiring_of(scenario(fabric, kind="parameter-server", mode="async", workers=workers))
        wiring.to_server(np.arange(4), at(0, 0, 0, 0))
        return [list(connection.ports)[1].split(" up to ")[1] for connection in connections(wiring)]

    assert spines(4) == spines(9)


def test_bytes_on_the_wire_leave_links_so_much_less():
    (path,) = between(scenario({**FABRIC, "transport": {"wire_bytes_per_byte": 1.25}}), (0, 7))
    assert list(path.ports.values()) == [8.0, 2.0, 2.0, 8.0]


def test_cpu_ports_and_hosts():
    there, back = between(scenario({"transport": {"cpu_per_byte_s": 0.5, "cpu_per_message_s": 0.1}}), (0, 1), (1, 0))
    assert list(there.ports) == ["node 0 out", "node 1 in", "node 0 cpu", "node 1 cpu"]
    assert there.ports.keys() & back.ports.keys() == {"node 0 cpu", "node 1 cpu"}  # one CPU, both directions
    assert there.ports["node 0 cpu"] == 2.0
    assert there.hosts == back.hosts[::-1] == ["node 0 messages", "node 1 messages"]


def test_every_port_says_what_it_is():
    """Kind, owner and where it leads, for any end of any path; the text for people is made of them."""
    cluster = {
        "devices_per_node": 2, "intra_node_topology": "mesh", "fabric": {"nodes_per_leaf": 1, "oversubscription": 1.0},
        "host_link": {"bandwidth_bytes_per_s": 10.0, "latency_s": 1.0},
        "transport": {"discipline": "weighted", "weight_sigma": 0.5, "flow_cap_bytes_per_s": 3.0, "cpu_per_byte_s": 0.1},
    }  # fmt: skip
    wiring = wiring_of(scenario(cluster, kind="parameter-server", mode="sync", workers=4, servers=1, replication="in-graph"))
    wiring.to_server(at(2), at(0))
    wiring.from_client(at(0))
    wiring.between_replicas(at(0), at(1))
    wiring.to_device(at(1))
    wiring.from_device(at(1))
    wiring.on_device(at(3))
    ports, links, _, hosts = wiring.tables()
    names = {str(name): name for name in [*ports.names, *hosts.names]}
    assert len(names) == len(ports.names) + len(hosts.names)
    kind, owner = PortKind, Owner
    for text, port in {
        "node 1 out": PortName(kind.NODE_OUT, owner("node", 1)),
        "server node 0 in": PortName(kind.NODE_IN, owner("server node", 0)),
        "client node cpu": PortName(kind.CPU, owner("client node")),
        "leaf 1 up to spine 0": PortName(kind.LEAF_UP, owner("leaf", 1), owner("spine", 0)),
        "leaf 0 down from spine 0": PortName(kind.LEAF_DOWN, owner("leaf", 0), owner("spine", 0)),
        "device 0 to device 1": PortName(kind.MESH, owner("device", 0), owner("device", 1)),
        "host link 1 to device": PortName(kind.HOST_LINK_IN, owner("host link", 1)),
        "host link 1 from device": PortName(kind.HOST_LINK_OUT, owner("host link", 1)),
        "connection 0": PortName(kind.CONNECTION, owner("connection", 0)),
        "device 3": PortName(kind.DEVICE, owner("device", 3)),
        "server node 0 messages": PortName(kind.MESSAGES, owner("server node", 0)),
    }.items():
        assert names.pop(text) == port
    assert {name.kind for name in ports.names[links:]} == {kind.CONNECTION, kind.DEVICE}
    assert names["node 0 in"].pattern == "node * in"
    assert port.pattern == "server node * messages"
