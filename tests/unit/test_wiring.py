"""Which ports a path crosses, what they carry, and how leaves and spines share: by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.networks import Messages, wiring_of
from support.scenarios import scenario_table

from simulator import scenario_from_table
from simulator.network.flows import Network
from simulator.network.kernel import Kernel
from simulator.network.objects import network_of
from simulator.network.ports import Connection
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


def connections(wiring: Wiring) -> list[Connection]:
    """All that were laid, as objects."""
    ports, _, paths, hosts = wiring.tables()
    return network_of(ports, paths, hosts)[1]


def between(built: Scenario, *pairs: tuple[int, int], replication: int = 0) -> list[Connection]:
    """Connections between replicas."""
    wiring = wiring_of(built, replication)
    wiring.between_replicas(*np.array(pairs).T)
    return connections(wiring)


def names(connection: Connection) -> list[str]:
    return [str(port.name) for port in connection.ports]


def test_between_nodes():
    path, other = between(scenario({}), (2, 5), (2, 6))
    assert names(path) == ["node 2 out", "node 5 in"]
    assert [port.capacity for port in path.ports] == [10.0, 10.0]
    assert path.latency_s == 1.0
    assert path.source is path.target is None  # a transport that adds nothing costs nothing
    assert other.ports[0] is path.ports[0]


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
    assert [port.capacity for port in path.ports] == [8.0, 40.0]
    assert path.latency_s == 3.0  # the larger of the two


RAILS = {"devices_per_node": 4, "nics_per_node": 4, "rails": 2}


def test_others_take_their_part_of_each_rail():
    whole, some = (
        {
            str(port.name): port.capacity
            for path in between(scenario({**RAILS, **more}), (0, 4), (1, 5), (2, 6), (3, 7), (8, 4))
            for port in path.ports
        }
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
        str(port.name): port.capacity / other.capacity
        for its, plain in zip(
            *(between(scenario({**RAILS, "fabric": fabric, **more}), (0, 8), (2, 14), (8, 16)) for more in (on, {})), strict=True
        )
        for port, other in zip(its.ports, plain.ports, strict=True)
    }
    taken = {name for name, share in found.items() if share == 0.75}
    assert taken == {"leaf 2 down from spine 0", "leaf 3 down from spine 0", "leaf 2 up to spine 0"}
    islands = {"devices_per_node": 4, "islands": {"devices": 2, "between": {"bandwidth_bytes_per_s": 8.0}}}
    (path,) = between(scenario({**islands, "background": {"load": 0.25, "on": "intra-node"}}), (0, 2))
    assert [(str(port.name), port.capacity) for port in path.ports] == [
        ("device 0 out to other islands", 6.0),
        ("device 2 in from other islands", 6.0),
    ]


def test_servers_and_the_client_have_nodes_after_the_workers():
    wiring = wiring_of(scenario({}, kind="parameter-server", mode="sync", workers=3, servers=1, replication="in-graph"))
    wiring.to_server(at(2), at(0))
    wiring.from_server(at(0), at(2))
    wiring.from_client(at(1))
    there, back, batch = connections(wiring)
    assert names(there) == ["node 2 out", "server node 0 in"]
    assert names(back) == ["server node 0 out", "node 2 in"]
    assert names(batch) == ["client node out", "node 1 in"]
    assert (there.asked_for, back.asked_for, batch.asked_for) == (False, True, False)
    assert wiring.node_of_server(at(0)) == 3


def test_inside_a_node_by_a_switch_or_by_links_between_every_two():
    cluster = {"devices_per_node": 4, "intra_node": {"bandwidth_bytes_per_s": 5.0, "latency_s": 0.5}}
    assert names(between(scenario(cluster), (4, 6))[0]) == ["device 4 out", "device 6 in"]
    there, back, other, apart = between(scenario({**cluster, "intra_node_topology": "mesh"}), (4, 6), (6, 4), (4, 7), (3, 4))
    assert names(there) == ["device 4 to device 6"]
    assert names(back) == ["device 6 to device 4"]
    assert there.ports[0] is not other.ports[0]
    assert there.latency_s == 0.5
    assert there.ports[0].capacity == 5.0
    assert names(apart) == ["node 0 out", "node 1 in"]


def test_host_links():
    link = {"bandwidth_bytes_per_s": 7.0, "latency_s": 0.25}
    shared = wiring_of(scenario({"devices_per_node": 4, "host_link": link, "devices_per_host_link": 2}))
    shared.to_device(at(3, 2, 1, 5))
    shared.from_device(at(3))
    down, beside, before, after, up = connections(shared)
    assert (names(down), names(up)) == (["host link 1 to device"], ["host link 1 from device"])
    assert down.ports[0].capacity == 7.0
    assert down.latency_s == 0.25
    assert down.ports[0] is beside.ports[0]
    assert down.ports[0] is not before.ports[0]
    assert names(after) == ["host link 2 to device"]  # the first of node 1
    own = wiring_of(scenario({"devices_per_node": 4, "replicas_per_device": 2, "host_link": link}))
    own.to_device(at(0, 1, 2))
    first, second, third = connections(own)
    assert first.ports == second.ports  # two replicas of one device
    assert first.ports != third.ports


FABRIC = {"fabric": {"nodes_per_leaf": 2, "oversubscription": 4.0, "spines": 2, "latency_s": 0.5}}


def test_leaves_and_spines():
    inside, across = between(scenario(FABRIC), (0, 1), (1, 6))
    assert names(inside) == ["node 0 out", "node 1 in"]
    assert inside.latency_s == 1.0
    up, down = across.ports[1:3]
    assert (str(up.name)[:-1], str(down.name)[:-1]) == ("leaf 0 up to spine ", "leaf 3 down from spine ")
    assert up.name[-1] == down.name[-1]
    # 2 nodes x 10 / 4 leave a leaf, half of it by each spine
    assert [port.capacity for port in across.ports] == [10.0, 2.5, 2.5, 10.0]
    assert across.latency_s == 1.5


def test_flows_share_a_leafs_links():
    """One spine of 2 x 10 / 4 = 5 bytes/s. Two flows leave leaf 0, one of them for a leaf that a third also goes to."""
    one_spine = {"fabric": {"nodes_per_leaf": 2, "oversubscription": 4.0}, "inter_node": {"bandwidth_bytes_per_s": 10.0}}
    built = scenario(one_spine)
    kernel = Kernel()
    messages = Messages(kernel, Network(kernel), built)
    ends: dict[str, float] = {}
    for source, target, size in ((0, 2, 5.0), (1, 4, 10.0), (6, 5, 15.0), (2, 3, 10.0)):
        name = f"{source} to {target}"
        messages.send(source, target, size, lambda name=name: ends.__setitem__(name, kernel.now))
    messages.run()
    # leaf 0 up: 2.5 each until 2 s; leaf 2 down: 2.5 and 2.5. 2 to 3 stays on its leaf: 10.
    # from 2 s on 1 to 4 has 5 bytes left, 6 to 5 has 10, and leaf 2's 5 bytes/s are theirs: until 4 s, then the last 5 alone
    assert ends == {"2 to 3": 1.0, "0 to 2": 2.0, "1 to 4": 4.0, "6 to 5": 5.0}


def test_routes_are_spread_evenly_and_stay_when_workers_come():
    fabric = {"fabric": {"nodes_per_leaf": 1, "spines": 4}}

    def routes(workers: int, replication: int = 0) -> dict[tuple[int, int], str]:
        pairs = [(source, target) for source in range(workers) for target in range(workers) if source != target]
        laid = between(scenario(fabric, workers=workers), *pairs, replication=replication)
        return {pair: names(connection)[1][-1] for pair, connection in zip(pairs, laid, strict=True)}

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
        return [names(connection)[1].split(" up to ")[1] for connection in connections(wiring)]

    assert spines(4) == spines(9)


def test_bytes_on_the_wire_leave_links_so_much_less():
    (path,) = between(scenario({**FABRIC, "transport": {"wire_bytes_per_byte": 1.25}}), (0, 7))
    assert [port.capacity for port in path.ports] == [8.0, 2.0, 2.0, 8.0]


def test_cpu_ports_and_hosts():
    there, back = between(scenario({"transport": {"cpu_per_byte_s": 0.5, "cpu_per_message_s": 0.1}}), (0, 1), (1, 0))
    assert names(there) == ["node 0 out", "node 1 in", "node 0 cpu", "node 1 cpu"]
    assert set(there.ports) & set(back.ports) == set(there.ports[2:])  # one CPU, both directions
    assert there.ports[2].capacity == 2.0
    assert (there.source, there.target) == (back.target, back.source)
    assert [str(host.name) for host in (there.source, there.target)] == ["node 0 messages", "node 1 messages"]


@pytest.mark.slow
def test_light_where_most_do_nothing():
    """Bytes of Python objects a connection, with its own tuple of two ports, and a port, before they are used."""
    import gc
    import tracemalloc

    wiring = wiring_of(scenario({}, kind="parameter-server", mode="async", workers=1000))
    workers, server = np.arange(1000), np.zeros(1000, dtype=int)
    wiring.to_server(workers, server)
    wiring.from_server(server, workers)
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        laid = connections(wiring)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(laid) == 2000
    assert used / 1000 < 1400
    network = Network(Kernel())
    assert laid[0].later is None
    network.send(laid[0], 1.0, lambda _: None)
    assert laid[0].later is None


@pytest.mark.parametrize("messages", [2, 3])
def test_a_queue_only_while_messages_wait(messages):
    kernel = Kernel()
    network = Network(kernel)
    (connection,) = between(scenario({}), (0, 1))
    for _ in range(messages):
        network.send(connection, 10.0, lambda _: None)
    assert len(connection.later) == messages - 1
    kernel.run()
    assert connection.later is None


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
