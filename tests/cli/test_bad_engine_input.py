"""What cannot be: strategies, clusters and runs that contradict themselves, and sizes that no simulation ends with.

Each is one line that says which rule is broken and what to do, exit 2, nothing simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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

Case = tuple[str, str, str]
"""The strategy; what is set besides, one setting a word that has an ``=``; what the one line must say."""

KINDS: list[Case] = [
    (
        RING,
        "strategy.backup_workers=1",
        'strategy.backup_workers: is no key of kind = "multi-worker-mirrored"; it belongs to kind = "parameter-server"',
    ),
    (RING, "strategy.mode=ssp", 'strategy.mode: is no key of kind = "multi-worker-mirrored"'),
    (RING, "strategy.bound=3", 'strategy.bound: is no key of kind = "multi-worker-mirrored"; it belongs to kind = "parameter-server"'),
    (RING, "strategy.replicas=4", 'strategy.replicas: is no key of kind = "multi-worker-mirrored"; it belongs to kind = "mirrored"'),
    (
        ASYNC,
        "strategy.algorithm=ring",
        'is no key of kind = "parameter-server"; it belongs to kind = "mirrored" or "multi-worker-mirrored"',
    ),
    (ASYNC, "strategy.fusion_cycle=1ms", "strategy.fusion_cycle: is no key of kind"),
    (ASYNC, "strategy.replicas_per_worker=2", "strategy.replicas_per_worker (2) must divide the 1 replicas that a node takes"),
    (SINGLE, "strategy.workers=2", 'is no key of kind = "single"; it belongs to kind = "multi-worker-mirrored" or "torch-ddp"'),
    (ONE_NODE, "strategy.wrokers=2", "strategy.wrokers: is no key of this table; `paceline schema` lists all keys"),
    (
        ASYNC,
        "workload.jitter={kind='lognormal',sigma=0.1,cv=0.1}",
        'jitter.cv: is no key of kind = "lognormal"; it belongs to kind = "normal"',
    ),
]
PLACES: list[Case] = [
    (ASYNC, "cluster.discipline=fair", "cluster.discipline: is no key of this table; did you mean cluster.transport.discipline?"),
    (ASYNC, "cluster.oversubscription=4", "did you mean cluster.fabric.oversubscription?"),
    (ASYNC, "strategy.steps=10", "strategy.steps: is no key of this table; did you mean run.steps?"),
    (ASYNC, "cluster.workers=2", "cluster.workers: is no key of this table; did you mean strategy.workers?"),
    (ASYNC, "cluster.jitter=3", "did you mean workload.jitter or input.jitter?"),
    (ASYNC, "cluster.transport.cpu_per_byte=1ns", "transport.cpu_per_byte: is no key of this table; did you mean cpu_per_byte_s?"),
    (ASYNC, "cluster.protocols.LL={}", "cluster.protocols.LL: is no key of this table"),
]
CHOICES: list[Case] = [
    (
        RING,
        "strategy.algorithm=nccl",
        "strategy.algorithm: 'nccl' must be 'ring', 'bidirectional-ring', 'halving-doubling', 'double-binary-tree'",
    ),
    (RING, "strategy.algorithm=Ring", "or 'auto'; did you mean 'ring'?"),
    (RING, "strategy.protocol=LL", "strategy.protocol: 'LL' must be 'none', 'simple', 'll', 'll128' or 'auto'; did you mean 'll'?"),
    (RING, "strategy.priority=backward", "strategy.priority: 'backward' must be 'ready' or 'forward'"),
    (ASYNC, "strategy.replication=in_graph", "must be 'between-graph' or 'in-graph'; did you mean 'in-graph'?"),
    (ASYNC, "strategy.pull_order=sorted", "strategy.pull_order: 'sorted' must be 'forward', 'random' or 'together'"),
    (ASYNC, "strategy.late_workers=stop", "strategy.late_workers: 'stop' must be 'finish' or 'cancel'"),
    (ASYNC, "strategy.partitioner={kind='fixed'}", "strategy.partitioner.kind: 'fixed' must be 'fixed-shards', 'min-size' or 'max-size'"),
    (ASYNC, "strategy.partitioner={}", "strategy.partitioner.kind: is missing"),
    (ASYNC, "cluster.transport.discipline=tcp", "'tcp' must be 'fair', 'in-order', 'streams' or 'weighted'"),
    (ASYNC, "cluster.intra_node_topology=nvlink", "'nvlink' must be 'switch' or 'mesh'"),
    (ASYNC, "run.sharing=own", "run.sharing: 'own' must be 'shared' or 'each-its-own'"),
]
NUMBERS: list[Case] = [
    (SYNC, "strategy.backup_workers=-1", "strategy.backup_workers: -1 must be at least 0"),
    (SYNC, "strategy.backup_workers=0.5", "strategy.backup_workers: 0.5 must be a whole number"),
    (ASYNC, "strategy.coordinator={dispatch=1}", 'strategy.coordinator.dispatch: 1 must carry its unit, such as "20 us"'),
    (ASYNC, "strategy.coordinator={dispatch_s=nan}", "strategy.coordinator.dispatch_s: nan must be a finite number"),
    (ASYNC, "strategy.coordinator=true", "strategy.coordinator: true must be a table"),
    (ASYNC, "strategy.partitioner={kind='max-size',shard_size_bytes='1MB'}", "text with a unit goes under the name without it"),
    (RING, "strategy.fusion_cycle_s=1e-12", "strategy.fusion_cycle_s: 1e-12 must be at least 1e-06"),
    (RING, "strategy.sync_every=0", "strategy.sync_every: 0 must be at least 1"),
    (ASYNC, "cluster.overlap_slowdown='20%'", "cluster.overlap_slowdown: '20%' must be a number"),
    (ASYNC, "cluster.fabric={nodes_per_leaf=2,oversubscription='4:1'}", "cluster.fabric.oversubscription: '4:1' must be a number"),
    (ASYNC, "cluster.fabric={nodes_per_leaf=2,spines=0}", "cluster.fabric.spines: 0 must be at least 1"),
    (ASYNC, "cluster.fabric={}", "cluster.fabric.nodes_per_leaf: is missing"),
    (ASYNC, "cluster.rails=3 cluster.devices_per_node=4 cluster.nics_per_node=3", "rails (3) must divide devices_per_node (4)"),
    (ASYNC, "cluster.rails=2 cluster.devices_per_node=4", "rails (2) must divide nics_per_node (1)"),
    (ASYNC, "cluster.fabric={nodes_per_leaf=2,rail_optimised=true}", "cluster.rails is left out: give the number of rails"),
    (
        ASYNC,
        "cluster.islands={devices=3} cluster.devices_per_node=4",
        "islands.devices (3) must divide devices_per_node (4) or be a multiple",
    ),
    (ASYNC, "cluster.islands={devices=2} cluster.devices_per_node=4", "islands.between is missing"),
    (ASYNC, "cluster.nvls={} cluster.intra_node_topology=mesh", 'intra_node_topology must be "switch"'),
    (RING, "strategy.algorithm=sharp", "needs a fabric whose switches add: set cluster.fabric.sharp"),
    (RING, "strategy.algorithm=nvls", "needs NVSwitches that add, as of Hopper and later: set cluster.nvls"),
    (RING, "strategy.algorithm=sharp cluster.fabric={nodes_per_leaf=2,sharp=true} strategy.protocol=ll", 'protocol "simple" alone'),
    (ASYNC, "cluster.transport.flow_cap='3GB'", "transport.flow_cap: '3GB' must be a bandwidth"),
    (ASYNC, "cluster.transport.wire_bytes_per_byte=0.5", "wire_bytes_per_byte: 0.5 must be at least 1"),
    (ASYNC, "cluster.transport.incast_loss=2", "cluster.transport.incast_loss: 2 must be at most 1"),
    (ASYNC, "cluster.host_link={latency='1us'}", "cluster.host_link.bandwidth: is missing"),
    (ASYNC, "cluster.node_classes={name='a'}", "cluster.node_classes: must be a list, not a table"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=1,slowdown=4}]", "cluster.node_classes.0.slowdown: 4 must be a table"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=1,speed=0}]", "cluster.node_classes.0.speed: 0 must be above 0"),
    (
        ASYNC,
        "workload.variables=[{name='a',size='1MB',creation_index=0,ready=1.0,rows=0}]",
        "workload.variables.0.rows: 0 must be at least 1",
    ),
    (ASYNC, "workload.input_bytes_per_sample='4kB'", "workload.input_bytes_per_sample: '4kB' must be a number"),
]
TOGETHER: list[Case] = [
    (ASYNC, "strategy.mode=ssp", 'mode = "ssp" needs bound, the steps that a worker may be ahead of the slowest, such as bound = 3'),
    (ASYNC, "strategy.bound=3", 'bound (3) is of mode = "ssp", not of "async"; leave it out or change mode'),
    (ASYNC, "strategy.backup_workers=1", 'backup_workers (1) need mode = "sync"'),
    (
        SYNC,
        "strategy.backup_workers=4",
        "strategy.backup_workers (4) must be below the 4 workers: a step averages the gradients of the others",
    ),
    (SYNC, "strategy.late_workers=cancel", 'late_workers = "cancel" needs backup_workers: without them no gradient comes too late'),
    (
        SYNC,
        "strategy.late_workers=cancel strategy.backup_workers=1 cluster.replicas_per_device=2",
        'strategy.late_workers = "cancel" needs a device for each replica: what others share cannot be stopped for one',
    ),
    (SYNC, "strategy.coordinator={}", 'coordinator needs mode = "async", not "sync"'),
    (
        ASYNC,
        "strategy.coordinator={} strategy.replication=in-graph workload.input_bytes_per_sample=1",
        'strategy.coordinator and strategy.replication = "in-graph" exclude each other',
    ),
    (
        ASYNC,
        "input={work={read_bytes_per_sample=1000}}",
        "input.work.read_bytes_per_sample (1000) needs cluster.storage, which says how fast they are read",
    ),
    (
        ASYNC,
        "strategy.replication=in-graph workload.input_bytes_per_sample=1 input={work={serial={base='1ms',per_sample='0s'}}}",
        'strategy.replication = "in-graph" has one client that prepares all batches',
    ),
    (
        ASYNC,
        "cluster.shared_cores=4 cluster.host_cores=4 input={work={serial={base='1ms',per_sample='0s'}}}",
        "cluster.host_cores (4) and cluster.shared_cores (4) both say on which cores batches are prepared: keep one of them",
    ),
    (ASYNC, "input={work={}}", "work has neither a serial nor a parallel part, nor bytes to read: leave [input] out"),
    (
        RING,
        "run.detail=at-once cluster.storage={over_network=true} input={work={read_bytes_per_sample=1000}}",
        'run.detail = "at-once" evaluates an all-reduce without its single messages, which share links with what pipelines read',
    ),
    (ASYNC, "strategy.replication=in-graph", 'strategy.replication = "in-graph" needs workload.input_bytes_per_sample'),
    (
        ASYNC,
        "strategy.replication=in-graph workload.input_bytes_per_sample=1 cluster.nodes=3",
        "2 replicas, 1 server and the client of the strategy need",
    ),
    (ASYNC, "strategy.servers=3", "must be at most the workload's 2 variables, since a variable is not cut without a partitioner"),
    (ASYNC, "strategy.servers=9 strategy.partitioner={kind='fixed-shards',shards=2}", "4 variables, even as the partitioner cuts them"),
    (ASYNC, "strategy.partitioner={kind='fixed-shards'}", 'partitioner: kind = "fixed-shards" takes shards (how many), and no shard size'),
    (ASYNC, "strategy.partitioner={kind='min-size'}", 'kind = "min-size" needs shards, the most that a variable is cut into'),
    (ASYNC, "strategy.partitioner={kind='max-size'}", 'kind = "max-size" needs shard_size, what a shard holds at most, such as'),
    (RING, "strategy.fusion_cycle=1ms", "strategy.fusion_cycle needs strategy.bucket_size, the most that is fused"),
    (RING, "strategy.through_host=true", "strategy.through_host needs cluster.host_link, over which gradients are copied"),
    (
        RING,
        f"strategy.through_host=true run.detail=messages {PCIE}",
        'run.detail = "messages" goes rank by rank, but strategy.through_host',
    ),
    (RING, f"strategy.fusion_cycle=1ms strategy.bucket_size=1MB {SHARED_CORES}", "which pipelines that share cores or storage"),
    (RING, f"strategy.priority=forward {SHARED_CORES}", 'priority = "forward" is simulated for all ranks at once, which pipelines'),
    (
        RING,
        f"strategy.through_host=true {PCIE} {SHARED_CORES}",
        "strategy.through_host is simulated for all ranks at once, which pipelines",
    ),
    (RING, f"cluster.overlap_slowdown=0.2 {SHARED_CORES}", "cluster.overlap_slowdown is simulated for all ranks at once in an all-reduce"),
    (RING, "strategy.priority=forward cluster.replicas_per_device=2", "which cluster.replicas_per_device above 1 rules out"),
    (RING, "strategy.priority=forward cluster.overlap_slowdown=0.2", "cannot be simulated together yet: set one of them aside"),
    (RING, "strategy.sync_every=2 strategy.bucket_size=1MB", "strategy.sync_every averages whole variables after a step"),
    (RING, "strategy.sync_every=4", "strategy.sync_every (4) must be at most the 3 steps that are measured (run.steps - run.warmup_steps)"),
    (RING, "strategy.algorithm=hierarchical-copy", "works among the devices of one node; over several take another"),
    (RING, "strategy.algorithm=hierarchical cluster.devices_per_node=3", "needs full nodes: 4 replicas are no multiple of the 3"),
    (RING, "cluster.overlap_slowdown=0.2 run.detail=messages", "but cluster.overlap_slowdown is simulated for all ranks at once"),
    (ASYNC, "cluster.overlap_slowdown=0.2 cluster.replicas_per_device=2", "is of a device that one replica has to itself"),
    (ASYNC, "cluster.device_is_host=true cluster.devices_per_node=2", "a host has one CPU to share"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=9}] cluster.nodes=4", "cluster: node_classes name 9 nodes, but there are 4"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=1}] cluster.node_speed=[1.0]", "both say how fast nodes are; keep one"),
    (ASYNC, "cluster.devices_per_host_link=2", "devices_per_host_link (2) must divide devices_per_node (1)"),
    (ASYNC, "cluster.transport.discipline=streams", 'discipline = "streams" needs streams; give it, such as streams = 4'),
    (ASYNC, "cluster.transport.streams=2", 'streams (2) is of discipline = "streams", not of "fair"; leave one of them out'),
    (ASYNC, "cluster.transport.weight_sigma=0.5", 'weight_sigma (0.5) is of discipline = "weighted", not of "fair"'),
    (ASYNC, "cluster.transport.discipline=weighted", 'discipline = "weighted" needs weight_sigma'),
    (ASYNC, "cluster.transport.incast_flows=3", "incast_flows (3) changes nothing without incast_loss; give that too"),
    (RING, "run.job_steps=100", "run.job_steps is for asynchronous workers, which share a job's steps"),
    (SYNC, "run.job_steps=100", "where all make each step together, give run.steps"),
    (ASYNC, "run.job_steps=100 run.sharing=each-its-own", 'job_steps are shared; with sharing = "each-its-own" give steps'),
    (ASYNC, "run.job_steps=100 run.warmup_steps=50", "run.warmup_steps (50) of each of 2 workers must be fewer than the job's 100 steps"),
    (ASYNC, "strategy.mode=ssp strategy.bound=1 run.drain=true", 'run.drain with mode = "ssp" needs run.sharing = "each-its-own"'),
]
SIZES: list[Case] = [
    (
        ASYNC,
        f"strategy.partitioner={{kind='max-size',shard_size_bytes=1}} {ONE_LARGE}",
        "into 250,000,000,000 shards; at most 1,000,000 are simulated",
    ),
    (
        ASYNC,
        "strategy.workers=10000000 strategy.servers=100 strategy.partitioner={kind='fixed-shards',shards=100}",
        "strategy has 10,000,000 workers connected with 100 servers; at most 100,000,000 pairs of them",
    ),
    (
        ASYNC,
        "strategy.workers=100000 strategy.servers=2 strategy.partitioner={kind='fixed-shards',shards=1000}",
        "sends 250,000,000 messages a step (variables and gradients of 100,000 workers); at most 100,000,000",
    ),
    (
        RING,
        "strategy.algorithm=double-binary-tree strategy.pipeline_chunk_bytes=1",
        "strategy.pipeline_chunk (1 B) cuts a buffer of 978 KiB into 1,001,000 pieces; at most 100,000 are simulated: take larger ones",
    ),
    (RING, "strategy.algorithm=auto strategy.pipeline_chunk_bytes=1e-9", "pieces; at most 100,000 are simulated"),
    (RING, "strategy.workers=100000 run.detail=messages", "would simulate about 20,000,000,000 messages a step one by one; at most"),
    (
        RING,
        "strategy.fusion_cycle=1us strategy.bucket_size=1MB workload.forward={base='100000000h',per_sample='0s'}",
        "strategy.fusion_cycle (1 µs) comes about 1.44e+18 times in this run; at most 1,000,000,000,000 can be told apart",
    ),
    (
        ASYNC,
        "cluster.inter_node.bandwidth_bytes_per_s=1e-320",
        "1e-320 is too small to compute with: it must lie between 1e-100 and 1e+100",
    ),
    (ASYNC, "cluster.inter_node.bandwidth_bytes_per_s=1e308 cluster.nics_per_node=64", "1e+308 is too large to compute with"),
    (ASYNC, "cluster.inter_node.latency='1e200s'", "cluster.inter_node.latency: '1e200s' is too large to compute with"),
    (ASYNC, "cluster.transport.cpu_per_byte_s=1e-310", "cluster.transport.cpu_per_byte_s: 1e-310 is too small to compute with"),
    (ASYNC, "workload.input_bytes_per_sample=1e300", "workload.input_bytes_per_sample: 1e+300 is too large to compute with"),
    (ASYNC, "cluster.node_classes=[{name='a',nodes=1,speed=1e-320}]", "cluster.node_classes.0.speed: 1e-320 is too small"),
]
SLOW = "factor=2,mean_slow_steps=5,mean_normal_steps=95"
FRACTION = "must be a number from 0 to below 1, or a list of two"
OTHERS: list[Case] = [
    (ASYNC, "cluster.background=0.5", "cluster.background: 0.5 must be a table"),
    (ASYNC, "cluster.background={load=1}", f"cluster.background.load: 1 {FRACTION}"),
    (ASYNC, "cluster.background={load='50%'}", f"cluster.background.load: '50%' {FRACTION}"),
    (ASYNC, "cluster.background={load=[0.1,0.2,0.3]}", f"cluster.background.load: {FRACTION}"),
    (ASYNC, "cluster.background={load=[0.5,0.1]}", "cluster.background: load (0.5, 0.1): the first must be at most the second"),
    (ASYNC, "cluster.background={flows=-1}", "cluster.background.flows: -1 must be at least 0"),
    (ASYNC, "cluster.background={flows=1.5}", "cluster.background.flows: 1.5 must be a whole number"),
    (ASYNC, "cluster.background={lod=0.5}", "cluster.background.lod: is no key of this table; did you mean load?"),
    (ASYNC, "cluster.background={each_link=true}", "give load as two numbers that differ, such as [0.1, 0.5]"),
    (ASYNC, "cluster.background={on='nic'}", "cluster.background.on: 'nic' must be 'inter-node', 'fabric' or 'intra-node'"),
    (ASYNC, "cluster.background={on='fabric',load=0.5}", 'background.on = "fabric" needs fabric'),
    (ASYNC, "cluster.background={nodes=[0,0],load=0.5}", "cluster.background: nodes names a node twice"),
    (ASYNC, "cluster.background={nodes=[7],load=0.5} cluster.nodes=4", "background.nodes names node 7, but there are 4"),
    (ASYNC, "cluster.background={load=0.5,repeat='1s'}", "cluster.background: repeat (1 s) is of a trace"),
    (ASYNC, "cluster.background={trace=[{load=0.5}]}", "cluster.background.trace.0.at: is missing"),
    (ASYNC, "cluster.background={trace=[{at='1s',load=0.5}]}", "cluster.background: trace must begin at 0 s, not at 1 s"),
    (ASYNC, "cluster.background={trace=[{at='0s'},{at='0s'}]}", "trace must go on in time: 0 s comes after 0 s"),
    (ASYNC, "cluster.background={trace=[{at='0s',load=2}]}", "cluster.background.trace.0.load: 2 must be below 1"),
    (ASYNC, "cluster.background={trace=[{at='0s'}],load=0.5}", "leave out load and flows beside it"),
    (ASYNC, "cluster.background={trace=[{at='0s'},{at='2s'}],repeat='1s'}", "repeat (1 s) must be above the last time of the trace (2 s)"),
    (
        ASYNC,
        "cluster.background={trace='none.csv'}",
        "background.trace: 'none.csv': there is no such file; give a CSV file with the columns",
    ),
    (
        RING,
        "cluster.background={trace=[{at='0s'},{at='1s',load=0.5}]} run.detail=at-once",
        'give "messages", or a constant cluster.background.load',
    ),
    (ASYNC, "cluster.slow_nodes=0.1", "cluster.slow_nodes: 0.1 must be a table"),
    (ASYNC, "cluster.slow_nodes={share=2,factor=2}", "cluster.slow_nodes.share: 2 must be at most 1"),
    (ASYNC, "cluster.slow_nodes={share=0.1}", "cluster.slow_nodes: share (0.1) needs factor, by how much slow nodes take longer (above 1)"),
    (ASYNC, "cluster.slow_nodes={share=0.1,factor=0.5}", "factor: 0.5 must be a number from 1 to 10000, or a list of two"),
    (ASYNC, "cluster.slow_nodes={share=0.1,factor=[2,1.5]}", "slow_nodes: factor (2, 1.5): the first must be at most the second"),
    (ASYNC, "cluster.slow_nodes={spread_cv=2}", "cluster.slow_nodes.spread_cv: 2 must be at most 1"),
    (ASYNC, "cluster.slow_nodes={shar=0.1}", "cluster.slow_nodes.shar: is no key of this table; did you mean share?"),
    (ASYNC, f"cluster.slowdown={{{SLOW},of='racks'}}", "'racks' must be 'device', 'node', 'rack' or 'cluster'; did you mean 'rack'?"),
    (ASYNC, f"cluster.slowdown={{{SLOW},of='rack'}}", 'slowdown.of = "rack" needs fabric, whose nodes_per_leaf says which nodes'),
    (
        ASYNC,
        f"cluster.node_classes=[{{name='a',nodes=1,slowdown={{{SLOW},of='rack'}}}}]",
        'node_classes: a: slowdown.of = "rack" needs fabric',
    ),
    (ASYNC, "cluster.rails=0", "cluster.rails: 0 must be at least 1"),
    (ASYNC, "cluster.rails=2.5", "cluster.rails: 2.5 must be a whole number"),
    (ASYNC, "cluster.pxn=yes", "cluster.pxn: 'yes' must be true or false"),
    (ASYNC, "cluster.islands=4", "cluster.islands: 4 must be a table"),
    (ASYNC, "cluster.islands={}", "cluster.islands.devices: is missing"),
    (
        ASYNC,
        "cluster.islands={devices=8,between={bandwidth='1GB/s'}} cluster.devices_per_node=4",
        "an island has whole nodes: leave it out",
    ),
    (
        ASYNC,
        "cluster.islands={devices=2,between={bandwidth='1GB/s',sort='rdma'}} cluster.devices_per_node=4",
        'islands.between.sort ("rdma") must be one of nvlink, pcie, host-memory, or left out',
    ),
    (ASYNC, "cluster.nvls=true", "cluster.nvls: true must be a table"),
    (ASYNC, "cluster.nvls={efficiency=1.5}", "cluster.nvls.efficiency: 1.5 must be at most 1"),
    (ASYNC, "cluster.nvls={} cluster.intra_node={bandwidth='16GB/s',sort='pcie'}", "nvls is done by NVSwitches"),
    (ASYNC, "cluster.fabric={nodes_per_leaf=2,sharp='yes'}", "cluster.fabric.sharp: 'yes' must be true or false"),
    (ASYNC, "cluster.sharp=true", "cluster.sharp: is no key of this table; did you mean cluster.fabric.sharp?"),
]
GROUPS = {"others": OTHERS, "kinds": KINDS, "places": PLACES, "choices": CHOICES, "numbers": NUMBERS, "together": TOGETHER, "sizes": SIZES}
ALL = [pytest.param(*case, id=f"{group}-{number}") for group, cases in GROUPS.items() for number, case in enumerate(cases)]


def set_all(*settings: str) -> list[str]:
    """The command line that sets each."""
    return ["simulate", "s.toml", *(word for setting in settings for word in ("--set", setting))]


@pytest.mark.parametrize(("strategy", "settings", "says"), ALL)
def test_what_cannot_be_is_one_line(strategy: str, settings: str, says: str, folder: Path, paceline: Callable[..., Answer]) -> None:
    refused(paceline(*set_all(strategy, *settings.split(" "))), "paceline: s.toml: ", says)


def test_entries_of_a_list_that_are_all_wrong_do_not_make_it_too_short(paceline: Callable[..., Answer]) -> None:
    answer = paceline(*set_all("workload.variables=[{name='a',size='1 MB',creation_index=0,ready=2.0}]"))
    assert answer.stderr == "paceline: s.toml: workload.variables.0.ready: 2.0 must be at most 1\n"


def test_a_worker_that_outruns_the_warm_up_of_the_others_is_a_failed_run(paceline: Callable[..., Answer]) -> None:
    settings = [
        "run.steps=200",
        "run.warmup_steps=199",
        "run.sharing=each-its-own",
        "cluster.node_classes=[{name='slow',nodes=1,speed=1e-6}]",
    ]
    refused(paceline(*set_all(*settings)), "before the warm-up of all was over", "run.drain = true", code=1)
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
