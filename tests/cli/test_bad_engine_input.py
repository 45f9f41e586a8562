"""What cannot be: strategies, clusters and runs that contradict themselves, and sizes that no simulation ends with.

Each is one line that says which rule is broken and what to do, exit 2, nothing simulated.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.command_line import Answer, refused

ASYNC = "strategy={kind='parameter-server',mode='async',workers=2}"
SYNC = "strategy={kind='parameter-server',mode='sync',workers=4}"
RING = "strategy={kind='multi-worker-mirrored',workers=4}"
ONE_NODE = "strategy={kind='mirrored'}"
SINGLE = "strategy={kind='single'}"
PCIE = "cluster.host_link={bandwidth='16GB/s'}"
SHARED_CORES = "cluster.devices_per_node=2 cluster.host_cores=2 input={parallel_calls=4,work={parallel={base='1ms',per_sample='0s'}}}"
ONE_LARGE = "workload.variables=[{name='a',size='1TB',creation_index=0,ready=1.0}]"

Case = tuple[str, ...]
"""The strategy; what is set besides, one setting a word that has an ``=``; the keys and values that the one line must name."""

KINDS: list[Case] = [
    (RING, "strategy.backup_workers=1", "strategy.backup_workers", '"multi-worker-mirrored"', '"parameter-server"'),
    (RING, "strategy.mode=ssp", "strategy.mode", '"multi-worker-mirrored"'),
    (RING, "strategy.replicas=4", "strategy.replicas", '"multi-worker-mirrored"', '"mirrored"'),
    (ASYNC, "strategy.algorithm=ring", '"parameter-server"', '"mirrored"', '"multi-worker-mirrored"'),
    (ASYNC, "strategy.replicas_per_worker=2", "strategy.replicas_per_worker (2)"),
    (SINGLE, "strategy.workers=2", '"single"', '"multi-worker-mirrored"', '"torch-ddp"'),
    (ONE_NODE, "strategy.wrokers=2", "strategy.wrokers", "`paceline schema`"),
    (ASYNC, "workload.jitter={kind='lognormal',sigma=0.1,cv=0.1}", "jitter.cv", '"lognormal"', '"normal"'),
]
PLACES: list[Case] = [
    (ASYNC, "cluster.discipline=fair", "cluster.discipline", "cluster.transport.discipline"),
    (ASYNC, "cluster.oversubscription=4", "cluster.fabric.oversubscription"),
    (ASYNC, "strategy.steps=10", "strategy.steps", "run.steps"),
    (ASYNC, "cluster.workers=2", "cluster.workers", "strategy.workers"),
    (ASYNC, "cluster.jitter=3", "workload.jitter", "input.jitter"),
    (ASYNC, "cluster.transport.cpu_per_byte=1ns", "transport.cpu_per_byte", "cpu_per_byte_s"),
    (ASYNC, "cluster.protocols.LL={}", "cluster.protocols.LL"),
]
CHOICES: list[Case] = [
    (RING, "strategy.algorithm=nccl", "strategy.algorithm: 'nccl'", "'ring'", "'bidirectional-ring'"),
    (RING, "strategy.algorithm=Ring", "'auto'", "'ring'"),
    (RING, "strategy.protocol=LL", "strategy.protocol: 'LL'", "'none'", "'simple'"),
    (RING, "strategy.priority=backward", "strategy.priority: 'backward'", "'ready'", "'forward'"),
    (ASYNC, "strategy.replication=in_graph", "'between-graph'", "'in-graph'"),
    (ASYNC, "strategy.pull_order=sorted", "strategy.pull_order: 'sorted'", "'forward'", "'random'"),
    (ASYNC, "strategy.late_workers=stop", "strategy.late_workers: 'stop'", "'finish'", "'cancel'"),
    (ASYNC, "strategy.partitioner={kind='fixed'}", "strategy.partitioner.kind: 'fixed'", "'fixed-shards'", "'min-size'"),
    (ASYNC, "strategy.partitioner={}", "strategy.partitioner.kind"),
    (ASYNC, "cluster.transport.discipline=tcp", "'tcp'", "'fair'", "'in-order'"),
    (ASYNC, "cluster.intra_node_topology=nvlink", "'nvlink'", "'switch'", "'mesh'"),
    (ASYNC, "run.sharing=own", "run.sharing: 'own'", "'shared'", "'each-its-own'"),
]
NUMBERS: list[Case] = [
    (SYNC, "strategy.backup_workers=-1", "strategy.backup_workers: -1"),
    (SYNC, "strategy.backup_workers=0.5", "strategy.backup_workers: 0.5"),
    (ASYNC, "strategy.coordinator={dispatch=1}", "strategy.coordinator.dispatch: 1", '"20 us"'),
    (ASYNC, "strategy.coordinator={dispatch_s=nan}", "strategy.coordinator.dispatch_s"),
    (ASYNC, "strategy.partitioner={kind='max-size',shard_size_bytes='1MB'}", "partitioner"),
    (RING, "strategy.fusion_cycle_s=1e-12", "strategy.fusion_cycle_s: 1e-12", "1e-06"),
    (RING, "strategy.sync_every=0", "strategy.sync_every: 0"),
    (ASYNC, "cluster.overlap_slowdown='20%'", "cluster.overlap_slowdown: '20%'"),
    (ASYNC, "cluster.fabric={nodes_per_leaf=2,oversubscription='4:1'}", "cluster.fabric.oversubscription: '4:1'"),
    (ASYNC, "cluster.fabric={nodes_per_leaf=2,spines=0}", "cluster.fabric.spines: 0"),
    (ASYNC, "cluster.fabric={}", "cluster.fabric.nodes_per_leaf"),
    (ASYNC, "cluster.rails=3 cluster.devices_per_node=4 cluster.nics_per_node=3", "devices_per_node (4)"),
    (ASYNC, "cluster.rails=2 cluster.devices_per_node=4", "nics_per_node (1)"),
    (ASYNC, "cluster.fabric={nodes_per_leaf=2,rail_optimised=true}", "cluster.rails"),
    (ASYNC, "cluster.islands={devices=3} cluster.devices_per_node=4", "islands.devices (3)", "devices_per_node (4)"),
    (ASYNC, "cluster.islands={devices=2} cluster.devices_per_node=4", "islands.between"),
    (ASYNC, "cluster.nvls={} cluster.intra_node_topology=mesh", "intra_node_topology", '"switch"'),
    (RING, "strategy.algorithm=sharp", "cluster.fabric.sharp"),
    (RING, "strategy.algorithm=nvls", "cluster.nvls"),
    (RING, "strategy.algorithm=sharp cluster.fabric={nodes_per_leaf=2,sharp=true} strategy.protocol=ll", '"simple"'),
    (ASYNC, "cluster.transport.flow_cap='3GB'", "transport.flow_cap: '3GB'"),
    (ASYNC, "cluster.transport.wire_bytes_per_byte=0.5", "wire_bytes_per_byte: 0.5"),
    (ASYNC, "cluster.transport.incast_loss=2", "cluster.transport.incast_loss: 2"),
    (ASYNC, "cluster.host_link={latency='1us'}", "cluster.host_link.bandwidth"),
    (ASYNC, "cluster.node_classes={name='a'}", "cluster.node_classes"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=1,slowdown=4}]", "cluster.node_classes.0.slowdown: 4"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=1,speed=0}]", "cluster.node_classes.0.speed: 0"),
    (ASYNC, "workload.variables=[{name='a',size='1MB',creation_index=0,ready=1.0,rows=0}]", "workload.variables.0.rows: 0"),
    (ASYNC, "workload.input_bytes_per_sample='4kB'", "workload.input_bytes_per_sample: '4kB'"),
]
TOGETHER: list[Case] = [
    (ASYNC, "strategy.mode=ssp", '"ssp"'),
    (ASYNC, "strategy.bound=3", '"ssp"', '"async"'),
    (ASYNC, "strategy.backup_workers=1", "backup_workers (1)", '"sync"'),
    (SYNC, "strategy.backup_workers=4", "strategy.backup_workers (4)"),
    (SYNC, "strategy.late_workers=cancel", "late_workers", '"cancel"', "backup_workers"),
    (SYNC, "strategy.late_workers=cancel strategy.backup_workers=1 cluster.replicas_per_device=2", "strategy.late_workers", '"cancel"'),
    (SYNC, "strategy.coordinator={}", '"async"', '"sync"'),
    (
        ASYNC,
        "strategy.coordinator={} strategy.replication=in-graph workload.input_bytes_per_sample=1",
        "strategy.coordinator",
        "strategy.replication",
        '"in-graph"',
    ),
    (ASYNC, "input={work={read_bytes_per_sample=1000}}", "input.work.read_bytes_per_sample (1000)", "cluster.storage"),
    (
        ASYNC,
        "strategy.replication=in-graph workload.input_bytes_per_sample=1 input={work={serial={base='1ms',per_sample='0s'}}}",
        "strategy.replication",
        '"in-graph"',
    ),
    (
        ASYNC,
        "cluster.shared_cores=4 cluster.host_cores=4 input={work={serial={base='1ms',per_sample='0s'}}}",
        "cluster.host_cores (4)",
        "cluster.shared_cores (4)",
    ),
    (ASYNC, "input={work={}}", "input"),
    (RING, "run.detail=at-once cluster.storage={over_network=true} input={work={read_bytes_per_sample=1000}}", "run.detail", '"at-once"'),
    (ASYNC, "strategy.replication=in-graph", "strategy.replication", '"in-graph"', "workload.input_bytes_per_sample"),
    (ASYNC, "strategy.replication=in-graph workload.input_bytes_per_sample=1 cluster.nodes=3", "cluster.nodes (3)"),
    (ASYNC, "strategy.servers=3", "servers"),
    (ASYNC, "strategy.servers=9 strategy.partitioner={kind='fixed-shards',shards=2}", "servers"),
    (ASYNC, "strategy.partitioner={kind='fixed-shards'}", '"fixed-shards"'),
    (ASYNC, "strategy.partitioner={kind='min-size'}", '"min-size"'),
    (ASYNC, "strategy.partitioner={kind='max-size'}", '"max-size"', "shard_size"),
    (RING, "strategy.fusion_cycle=1ms", "strategy.fusion_cycle", "strategy.bucket_size"),
    (RING, "strategy.through_host=true", "strategy.through_host", "cluster.host_link"),
    (RING, f"strategy.through_host=true run.detail=messages {PCIE}", "run.detail", '"messages"', "strategy.through_host"),
    (RING, f"strategy.fusion_cycle=1ms strategy.bucket_size=1MB {SHARED_CORES}", "fusion_cycle"),
    (RING, f"strategy.priority=forward {SHARED_CORES}", '"forward"'),
    (RING, f"strategy.through_host=true {PCIE} {SHARED_CORES}", "strategy.through_host"),
    (RING, f"cluster.overlap_slowdown=0.2 {SHARED_CORES}", "cluster.overlap_slowdown"),
    (RING, "strategy.priority=forward cluster.replicas_per_device=2", "cluster.replicas_per_device"),
    (RING, "strategy.priority=forward cluster.overlap_slowdown=0.2", "priority"),
    (RING, "strategy.sync_every=2 strategy.bucket_size=1MB", "strategy.sync_every"),
    (RING, "strategy.sync_every=4", "strategy.sync_every (4)", "run.steps", "run.warmup_steps"),
    (RING, "strategy.algorithm=hierarchical-copy", "algorithm"),
    (RING, "strategy.algorithm=hierarchical cluster.devices_per_node=3", "algorithm"),
    (RING, "cluster.overlap_slowdown=0.2 run.detail=messages", "cluster.overlap_slowdown"),
    (ASYNC, "cluster.overlap_slowdown=0.2 cluster.replicas_per_device=2", "overlap_slowdown"),
    (ASYNC, "cluster.device_is_host=true cluster.devices_per_node=2", "device_is_host"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=9}] cluster.nodes=4", "node_classes"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=1}] cluster.node_speed=[1.0]", "node_classes"),
    (ASYNC, "cluster.devices_per_host_link=2", "devices_per_host_link (2)", "devices_per_node (1)"),
    (ASYNC, "cluster.transport.discipline=streams", '"streams"'),
    (ASYNC, "cluster.transport.streams=2", '"streams"', '"fair"'),
    (ASYNC, "cluster.transport.weight_sigma=0.5", "weight_sigma (0.5)", '"weighted"', '"fair"'),
    (ASYNC, "cluster.transport.discipline=weighted", '"weighted"', "weight_sigma"),
    (ASYNC, "cluster.transport.incast_flows=3", "incast_flows (3)", "incast_loss"),
    (RING, "run.job_steps=100", "run.job_steps"),
    (SYNC, "run.job_steps=100", "run.steps"),
    (ASYNC, "run.job_steps=100 run.sharing=each-its-own", "job_steps", '"each-its-own"'),
    (ASYNC, "run.job_steps=100 run.warmup_steps=50", "run.warmup_steps (50)", "100"),
    (ASYNC, "strategy.mode=ssp strategy.bound=1 run.drain=true", "run.drain", '"ssp"', "run.sharing"),
]
SIZES: list[Case] = [
    (ASYNC, f"strategy.partitioner={{kind='max-size',shard_size_bytes=1}} {ONE_LARGE}", "250,000,000,000", "1,000,000"),
    (
        ASYNC,
        "strategy.workers=10000000 strategy.servers=100 strategy.partitioner={kind='fixed-shards',shards=100}",
        "10,000,000",
        "100,000,000",
    ),
    (
        ASYNC,
        "strategy.workers=100000 strategy.servers=2 strategy.partitioner={kind='fixed-shards',shards=1000}",
        "250,000,000",
        "100,000,000",
    ),
    (
        RING,
        "strategy.algorithm=double-binary-tree strategy.pipeline_chunk_bytes=1",
        "strategy.pipeline_chunk (1 B)",
        "978 KiB",
        "1,001,000",
    ),
    (RING, "strategy.algorithm=auto strategy.pipeline_chunk_bytes=1e-9", "100,000"),
    (RING, "strategy.workers=100000 run.detail=messages", "20,000,000,000"),
    (
        RING,
        "strategy.fusion_cycle=1us strategy.bucket_size=1MB workload.forward={base='100000000h',per_sample='0s'}",
        "strategy.fusion_cycle (1 µs)",
        "1.44e+18",
        "1,000,000,000,000",
    ),
    (ASYNC, "cluster.inter_node.bandwidth_bytes_per_s=1e-320", "1e-320", "1e-100", "1e+100"),
    (ASYNC, "cluster.inter_node.bandwidth_bytes_per_s=1e308 cluster.nics_per_node=64", "1e+308"),
    (ASYNC, "cluster.inter_node.latency='1e200s'", "cluster.inter_node.latency: '1e200s'"),
    (ASYNC, "cluster.transport.cpu_per_byte_s=1e-310", "cluster.transport.cpu_per_byte_s: 1e-310"),
    (ASYNC, "workload.input_bytes_per_sample=1e300", "workload.input_bytes_per_sample: 1e+300"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=1,speed=1e-320}]", "cluster.node_classes.0.speed: 1e-320"),
]
SLOW = "factor=2,mean_slow_steps=5,mean_normal_steps=95"
OTHERS: list[Case] = [
    (ASYNC, "cluster.background=0.5", "cluster.background: 0.5"),
    (ASYNC, "cluster.background={load=1}", "cluster.background.load: 1"),
    (ASYNC, "cluster.background={load='50%'}", "cluster.background.load: '50%'"),
    (ASYNC, "cluster.background={load=[0.1,0.2,0.3]}", "cluster.background.load"),
    (ASYNC, "cluster.background={load=[0.5,0.1]}", "cluster.background", "0.5", "0.1"),
    (ASYNC, "cluster.background={flows=-1}", "cluster.background.flows: -1"),
    (ASYNC, "cluster.background={each_link=true}", "0.1", "0.5"),
    (ASYNC, "cluster.background={on='nic'}", "cluster.background.on: 'nic'", "'inter-node'", "'fabric'"),
    (ASYNC, "cluster.background={on='fabric',load=0.5}", "background.on", '"fabric"'),
    (ASYNC, "cluster.background={nodes=[0,0],load=0.5}", "cluster.background"),
    (ASYNC, "cluster.background={nodes=[7],load=0.5} cluster.nodes=4", "background.nodes"),
    (ASYNC, "cluster.background={load=0.5,repeat='1s'}", "cluster.background", "1 s"),
    (ASYNC, "cluster.background={trace=[{load=0.5}]}", "cluster.background.trace.0.at"),
    (ASYNC, "cluster.background={trace=[{at='1s',load=0.5}]}", "cluster.background", "0 s", "1 s"),
    (ASYNC, "cluster.background={trace=[{at='0s'},{at='0s'}]}", "0 s"),
    (ASYNC, "cluster.background={trace=[{at='0s',load=2}]}", "cluster.background.trace.0.load: 2"),
    (ASYNC, "cluster.background={trace=[{at='0s'}],load=0.5}", "background"),
    (ASYNC, "cluster.background={trace=[{at='0s'},{at='2s'}],repeat='1s'}", "1 s", "2 s"),
    (ASYNC, "cluster.background={trace='none.csv'}", "background.trace: 'none.csv'"),
    (RING, "cluster.background={trace=[{at='0s'},{at='1s',load=0.5}]} run.detail=at-once", '"messages"', "cluster.background.load"),
    (ASYNC, "cluster.slow_nodes={share=2,factor=2}", "cluster.slow_nodes.share: 2"),
    (ASYNC, "cluster.slow_nodes={share=0.1}", "cluster.slow_nodes", "0.1"),
    (ASYNC, "cluster.slow_nodes={share=0.1,factor=0.5}", "0.5", "10000"),
    (ASYNC, "cluster.slow_nodes={share=0.1,factor=[2,1.5]}", "slow_nodes", "1.5"),
    (ASYNC, "cluster.slow_nodes={spread_cv=2}", "cluster.slow_nodes.spread_cv: 2"),
    (ASYNC, f"cluster.slowdown={{{SLOW},of='racks'}}", "'racks'", "'device'", "'node'"),
    (ASYNC, f"cluster.slowdown={{{SLOW},of='rack'}}", "slowdown.of", '"rack"', "nodes_per_leaf"),
    (ASYNC, f"cluster.node_classes=[{{name='a',nodes=1,slowdown={{{SLOW},of='rack'}}}}]", "node_classes", "slowdown.of", '"rack"'),
    (ASYNC, "cluster.rails=0", "cluster.rails: 0"),
    (ASYNC, "cluster.rails=2.5", "cluster.rails: 2.5"),
    (ASYNC, "cluster.pxn=yes", "cluster.pxn: 'yes'"),
    (ASYNC, "cluster.islands={}", "cluster.islands.devices"),
    (ASYNC, "cluster.islands={devices=8,between={bandwidth='1GB/s'}} cluster.devices_per_node=4", "islands"),
    (
        ASYNC,
        "cluster.islands={devices=2,between={bandwidth='1GB/s',sort='rdma'}} cluster.devices_per_node=4",
        'islands.between.sort ("rdma")',
    ),
    (ASYNC, "cluster.nvls={efficiency=1.5}", "cluster.nvls.efficiency: 1.5"),
    (ASYNC, "cluster.nvls={} cluster.intra_node={bandwidth='16GB/s',sort='pcie'}", "nvls"),
    (ASYNC, "cluster.fabric={nodes_per_leaf=2,sharp='yes'}", "cluster.fabric.sharp: 'yes'"),
    (ASYNC, "cluster.sharp=true", "cluster.sharp", "cluster.fabric.sharp"),
]


def set_all(*settings: str) -> list[str]:
    """The command line that sets each."""
    return ["simulate", "s.toml", *(word for setting in settings for word in ("--set", setting))]


@pytest.mark.parametrize(
    ("strategy", "settings", "names"),
    [
        pytest.param(strategy, settings, names, id=" ".join([*re.findall("'([a-z-]+)'", strategy), settings]))
        for strategy, settings, *names in [*KINDS, *PLACES, *CHOICES, *NUMBERS, *TOGETHER, *SIZES, *OTHERS]
    ],
)
def test_what_cannot_be_is_one_line(strategy: str, settings: str, names: list[str], refusal: Callable[..., None]) -> None:
    refusal(set_all(strategy, *settings.split(" ")), "paceline: s.toml: ", *names)


def test_entries_of_a_list_that_are_all_wrong_do_not_make_it_too_short(refusal: Callable[..., None]) -> None:
    refusal(set_all("workload.variables=[{name='a',size='1 MB',creation_index=0,ready=2.0}]"), "workload.variables.0.ready: 2.0")


def test_a_worker_that_outruns_the_warm_up_of_the_others_is_a_failed_run(paceline: Callable[..., Answer]) -> None:
    settings = [
        "run.steps=200",
        "run.warmup_steps=199",
        "run.sharing=each-its-own",
        "cluster.node_classes=[{name='slow',nodes=1,speed=1e-6}]",
    ]
    refused(paceline(*set_all(*settings)), "run.drain = true", code=1)
    assert paceline(*set_all(*settings, "run.drain=true")).code == 0


@pytest.mark.parametrize(
    "settings",
    [
        (SYNC, "strategy.backup_workers=1", "run.drain=true", "run.steps=60", "strategy.late_workers=cancel"),
        (SYNC, "strategy.backup_workers=3"),
        (SYNC, "run.drain=true"),
        (SYNC, "run.sharing=each-its-own"),
        (ASYNC, "strategy.workers=50", "run.job_steps=3", "run.drain=true"),
        (ASYNC, "strategy.mode=ssp", "strategy.bound=1000000000"),
        (
            ASYNC,
            "strategy.servers=2",
            "strategy.server_placement=colocated",
            "cluster.device_is_host=true",
            "cluster.replicas_per_device=2",
        ),
        (ASYNC, "cluster.fabric={nodes_per_leaf=1,oversubscription=1000,spines=1024}"),
        (ASYNC, "cluster.transport={discipline='weighted',weight_sigma=3}"),
        (ASYNC, "cluster.transport={discipline='streams',streams=100000,incast_loss=1,cpu_per_byte_s=1}"),
        (ASYNC, "cluster.node_classes=[{name='a',nodes=1,slowdown={factor=1e4,mean_slow_steps=1e9,mean_normal_steps=1e9}}]"),
        (
            ASYNC,
            "strategy.partitioner={kind='max-size',shard_size_bytes=1}",
            "workload.variables=[{name='a',size_bytes=1e-90,creation_index=0,ready=1.0}]",
        ),
        (RING, "strategy.workers=1", "strategy.sync_every=2", "strategy.algorithm=hierarchical"),
        (RING, "strategy.workers=1", "strategy.priority=forward"),
        (
            RING,
            "strategy.workers=3",
            "strategy.algorithm=auto",
            "strategy.protocol=auto",
            "run.detail=messages",
            "strategy.bucket_size=1kB",
        ),
        ("strategy={kind='mirrored',algorithm='reduce-to-one-device',replicas=1}",),
    ],
    ids=lambda settings: settings[-1][:60],
)
def test_extremes_that_are_allowed_end(settings: tuple[str, ...], paceline: Callable[..., Answer]) -> None:
    answer = paceline(*set_all(*settings), "--json")
    assert (answer.code, answer.stderr) == (0, "")


def test_spines_that_differ_between_replications_are_told_apart(paceline: Callable[..., Answer]) -> None:
    settings = ("strategy.workers=6", "strategy.servers=2", "cluster.fabric={nodes_per_leaf=2,spines=7}", "run.replications=5")
    assert paceline(*set_all(*settings)).code == 0
