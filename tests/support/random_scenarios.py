"""Random small scenarios of every kind: from a seed, or from Hypothesis, which then finds the simplest that fails.

Options stand with the simplest first, towards which Hypothesis shrinks. Sizes, times and
rates are small multiples of a few round numbers, so that many things happen at the same
instant; half of the scenarios are made of powers of two, where sums are exact.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from pydantic import ValidationError

from simulator import Scenario, scenario_from_table
from simulator.base.errors import ScenarioError
from support.scenarios import scenario_table

_GOLDEN = (math.sqrt(5) - 1) / 2
_LENGTHS = "_s", "_bytes", "_byte", "_per_s"

Table = dict[str, Any]
T = TypeVar("T")
Pick = Callable[[Sequence[Any]], Any]
"""Picks one of several options."""


class _Rules:
    """What a scenario is measured in: seconds, bytes and bytes a second that go into one another evenly."""

    def __init__(self, pick: Pick) -> None:
        second, size = pick(((2.0**-10, 2.0**20), (1e-3, 1e6)))
        self._pick = pick
        self._second_s = second
        self._size_bytes = size

    def time_s(self, *units: float) -> float:
        return float(self._pick(units or (1, 2, 3, 5, 0.25)) * self._second_s)

    def short_s(self) -> float:
        """Of work and delays beside a message."""
        return self.time_s(0, 0.125, 0.5, 1 / 64)

    def size_bytes(self) -> float:
        return float(self._pick((1, 1, 2, 3, 0.5, 1 / 64)) * self._size_bytes)

    def rate(self, *units: float) -> float:
        """One unit of bytes in one unit of time, or a multiple."""
        return float(self._pick(units or (1, 1, 2, 4, 0.7, 32)) * self._size_bytes / self._second_s)

    def per_byte_s(self, *units: float) -> float:
        return float(self._pick(units) * self._second_s / self._size_bytes)

    def link(self, *units: float) -> Table:
        return {"bandwidth_bytes_per_s": self.rate(*units), "latency_s": self.short_s()}


def random_table(pick: Pick) -> Table:
    """A scenario as a table; a few of them break a rule of scenarios."""
    rules = _Rules(pick)
    kind = pick(("single", *("mirrored",) * 4, *("multi-worker-mirrored",) * 14, *("parameter-server",) * 14, *("gossip",) * 2,
                 *("hybrid",) * 12))  # fmt: skip
    servers = kind == "parameter-server"
    shape = _shape(pick, kind)
    mode = pick(("async", "async", "ssp", "sync", "sync")) if servers else ""
    workers = 1 if kind == "single" else pick((1, 2, 2, 3, 3, 4, 4, 5, 6))
    team = 1
    if kind == "hybrid":
        shape = pick(({}, {"devices_per_node": 2}, {"devices_per_node": 4}))
    if kind in ("parameter-server", "multi-worker-mirrored") and shape.get("replicas_per_device", 1) == 1 and len(shape) <= 1:
        team = pick((1,) * 6 + (2, 3))
        if team > 1:
            shape["devices_per_node"] = team * pick((1, 2))
            workers = min(workers, 3)
    load = _workload(pick, rules, shape)
    cluster = {**_cluster(pick, rules, servers=servers, shape=shape), **shape, **_neighbours(pick, rules)}
    if kind == "hybrid" and cluster.get("background", {}).get("trace") and pick((False, True, True)):
        del cluster["background"]  # whose collectives no trace slows down
    if cluster.get("background", {}).get("on") == "fabric" or cluster.get("slowdown", {}).get("of") == "rack":
        cluster.setdefault("fabric", {"nodes_per_leaf": pick((1, 2)), "oversubscription": pick((1.0, 4.0))})
    run = _run(pick, rules, mode, workers * team)
    if servers:
        strategy = _servers(pick, rules, mode, workers, load, cluster, run)
    elif kind in ("single", "gossip"):
        strategy = {"kind": kind}
    elif kind == "hybrid":
        load["layers"] = _layers(pick, rules, load)
        strategy, training = _hybrid(pick, rules, load, cluster, run)
        table = {"workload": load, "cluster": cluster, "strategy": strategy, "run": run, "training": training, "discrepancy": {}}
        if pick((False,) * 5 + (True,)):
            table["input"] = _input(pick, rules, cluster)
        _fabric(pick, rules, cluster, strategy)
        if pick((False, False, True)):
            _split_sequences(pick, rules, load, strategy)
        of_experts = [layer for layer in load["layers"] if "experts" in layer]
        if strategy["tensor"] > 1 and of_experts and all("tensor" in layer for layer in of_experts):
            strategy |= pick(({}, {"expert_tensor": 1, "sequence_parallel": True}, {"expert_tensor": 2, "sequence_parallel": True}))
        return table
    else:
        strategy = _all_reduce(pick, rules, kind, workers * team, load, cluster, run)
    if team > 1:
        strategy["replicas_per_worker"] = team
    if kind in ("parameter-server", "multi-worker-mirrored", "gossip"):
        strategy["workers"] = workers
    if pick((False,) * 12 + (True,)):
        del load["batch_per_replica"]
        load["global_batch"] = 4 * (workers * team if kind != "mirrored" else strategy["replicas"])
    if kind == "multi-worker-mirrored" and team == 1 and pick((False, False, True)):
        strategy = _of_other_frameworks(pick, rules, strategy)
    if servers:
        _hosts(pick, load, cluster)
    table = {"workload": load, "cluster": cluster, "strategy": strategy, "run": run, "discrepancy": {}}
    if kind in ("mirrored", "multi-worker-mirrored", "parameter-server") and pick((False, True)):
        strategy["compression"] = _compression(pick, rules)
    if pick((False,) * 3 + (True,)):
        table["training"] = _training(pick)
    if pick((False,) * 4 + (True,)):
        table["input"] = _input(pick, rules, cluster)
    _fabric(pick, rules, cluster, strategy)
    return table


def _of_other_frameworks(pick: Pick, rules: _Rules, strategy: Table) -> Table:
    """The same all-reduce as PyTorch's or JAX's, with its own defaults."""
    if pick((False, True)):
        return {**strategy, "kind": "keras-data-parallel", **({"replicas_per_worker": 1} if pick((True, False)) else {})}
    own: Table = {**strategy, "kind": "torch-ddp", "gradient_as_bucket_view": pick((True, False))}
    if own.get("bucket_size_bytes") is not None and pick((True, False)):
        own["first_bucket_size_bytes"] = rules.size_bytes()
    return own


def _input(pick: Pick, rules: _Rules, cluster: Table) -> Table:
    """A pipeline, and what it reads from and works on."""

    def affine(*units: float) -> Table:
        return {"base_s": rules.time_s(*units), "per_sample_s": rules.time_s(0, 0.125, 0.5)}

    work: Table = {pick(("serial", "parallel")): affine(0.5, 1, 2)}
    if pick((False, True)):
        work = {"serial": affine(0, 0.5), "parallel": affine(1, 4)}
    if pick((False, True)):
        work["read_bytes_per_sample"] = rules.size_bytes()
        storage: Table = {"latency_s": rules.short_s()}
        if pick((True, True, False)):
            storage["bandwidth_bytes_per_s"] = rules.rate()
        if pick((False, True)):
            storage["node_bandwidth_bytes_per_s"] = rules.rate()
        if pick((False, False, True)):
            storage["over_network"] = True
        cluster["storage"] = storage
    if "shared_cores" not in cluster and pick((False, True)):
        cluster["host_cores"] = pick((1, 2, 4))
    its: Table = {"work": work, "prefetch": pick((1, 0, 2, 3)), "parallel_calls": pick((1, 2, 4)), "per": pick(("process", "replica"))}
    if pick((False, True)):
        its["jitter"] = _law(pick)
    if pick((False,) * 3 + (True,)):
        its["cached"] = {"serial": affine(0, 0.25)}
    return its


def _fabric(pick: Pick, rules: _Rules, cluster: Table, strategy: Table) -> None:
    """Now and then NICs that belong to devices, islands, and switches that add."""
    devices = cluster.get("devices_per_node", 1)
    if pick((False,) * 4 + (True,)):
        cluster["rails"] = rails = pick([number for number in (1, 2, 4) if devices % number == 0])
        cluster["nics_per_node"] = rails * pick((1, 1, 2))
        if pick((False, True)):
            cluster.setdefault("fabric", {"nodes_per_leaf": pick((1, 2, 3)), "oversubscription": pick((1.0, 4.0))})
        if "fabric" in cluster:
            cluster["fabric"]["rail_optimised"] = pick((True, False))
            cluster["pxn"] = pick((True, True, False))
    if pick((False,) * 7 + (True,)):
        island = pick((devices, 1, 2 * devices))
        if devices % island == 0 or island % devices == 0:
            cluster["islands"] = {"devices": island} | ({"between": rules.link()} if island < devices else {})
    adds = [
        name
        for name in ("sharp", "nvls")
        if strategy["kind"] in ("multi-worker-mirrored", "mirrored", "hybrid") and pick((False, False, True))
    ]
    if "sharp" in adds:
        cluster.setdefault("fabric", {"nodes_per_leaf": pick((1, 2))})["sharp"] = True
    if "nvls" in adds:
        cluster["nvls"] = {"efficiency": pick((1.0, 0.75))}
    if adds:
        strategy |= {"algorithm": pick((*adds, "auto")), "pipeline_chunk_bytes": rules.size_bytes()}
        if strategy["algorithm"] != "auto":
            strategy["protocol"] = pick(("none", "simple", "auto"))


def _compression(pick: Pick, rules: _Rules) -> Table:
    """Smaller gradients, some of which cannot be added on the way."""
    table: Table = {"kind": pick(("fp16", "int8", "int8", "1-bit", "1-bit", "top-k", "powersgd", "powersgd"))}
    if table["kind"] == "top-k":
        table["ratio"] = pick((0.01, 0.25))
    if table["kind"] == "powersgd":
        table["rank"] = pick((1, 4))
    if table["kind"] in ("top-k", "powersgd") and pick((False, False, True)):
        table["error_feedback"] = False
    if table["kind"] in ("int8", "1-bit") and pick((False, True, True, True)):
        table["exchange"] = pick(("all-reduce", "all-gather"))
    if pick((True, False)):
        table |= {"compress_per_byte_s": rules.per_byte_s(0, 0.25), "decompress_per_byte_s": rules.per_byte_s(0.125)}
    return table


def _training(pick: Pick) -> Table:
    """Micro-batches, passes made again, and another precision."""
    table: Table = {"micro_batches": pick((2, 4, 1)), "recompute": pick(("none", "full"))}
    if pick((False, True)):
        table |= {
            "precision": pick(("mixed_float16", "mixed_bfloat16", "bfloat16", "float32")),
            "precision_factor": [0.5, 0.75],
            "precision_source": "made up",
        }
        if table["precision"] == "mixed_float16" and pick((False, True)):
            table["skipped_share"] = 0.25
    return table


# -- the parts -----------------------------------------------------------------------------


def _shape(pick: Pick, kind: str) -> Table:
    """How devices stand in nodes and who shares what."""
    several = {"devices_per_node": 2 if kind == "parameter-server" else 4}
    return dict(
        pick((
            *({},) * 5, several, several, {"replicas_per_device": 2}, {"device_is_host": True},
            {"shared_cores": 2.0, "time_slice_s": 1e-3}, {"shared_cores": 3.0, "device_is_host": True},
            {"shared_cores": 2.0, "device_is_host": True, **several}, {"replicas_per_device": 2, **several},
        ))
    )  # fmt: skip


def _law(pick: Pick) -> Table:
    return dict(
        pick((
            {"kind": "constant"}, {"kind": "constant"}, {"kind": "empirical", "values": [1.0, 1.0, 2.0]}, {"kind": "exponential"},
            {"kind": "gamma", "shape": 4.0}, {"kind": "lognormal", "sigma": 0.5}, {"kind": "normal", "cv": 0.2},
            {"kind": "shifted-exponential", "tail": 0.5}, {"kind": "gamma", "shape": 4.0, "persistence": 0.7},
            {"kind": "empirical", "values": [1.0, 3.0], "persistence": 1.0},
        ))
    )  # fmt: skip


def _hosts(pick: Pick, load: Table, cluster: Table) -> None:
    """What carries tensors, variables that stand for several, and a step that held its own pull and push."""
    if software := pick((None, None, "grpc", "given", "given")):
        cluster["transport"] = {**cluster.get("transport", {}), "software": software}
    if pick((False,) * 5 + (True,)):
        variable = pick(load["variables"])
        variable["tensors"] = pick((2, 3))
    if pick((False,) * 11 + (True,)):
        load["measured_with"] = "servers"


def _workload(pick: Pick, rules: _Rules, shape: Table) -> Table:
    count = pick((1, 2, 2, 3, 3, 4, 5, 6))
    created = list(range(count))
    if pick((False, True)):
        created = [created.pop(pick(range(len(created)))) for _ in range(count)]
    ready = sorted(pick((1.0, 0.5, 0.5, 0.25, 0.75, 0.0)) for _ in range(count))
    variables = []
    for index in range(count):
        variable = {"name": f"v{index}", "size_bytes": rules.size_bytes(), "creation_index": created[index], "ready": ready[index]}
        if pick((False,) * 5 + (True,)):
            variable["rows"] = pick((2, 3, 100))
        if pick((False,) * 5 + (True,)):
            variable |= {"rows": 64, "columns": pick((16, 64))}
        if pick((False,) * 7 + (True,)):
            variable["sparse_bytes_per_sample"] = pick((64.0, 4096.0))
        variables.append(variable)
    load: Table = {
        "name": "random",
        "batch_per_replica": 4,
        "forward": {"base_s": rules.time_s(1, 0, 2, 0.5), "per_sample_s": rules.time_s(0.25, 0.125)},
        "backward": {"base_s": rules.time_s(2, 1, 0, 4), "per_sample_s": 0.0},
        "apply_s": rules.time_s(0, 0.5, 1),
        "jitter": _law(pick),
        "server": {"base_s": rules.short_s(), "per_byte_s": rules.per_byte_s(0, 0, 0.25, 1)},
        "variables": variables,
    }
    for given, key in (
        (lambda: {"base_s": rules.time_s(1, 3, 6), "per_sample_s": rules.time_s(0, 0.125)}, "input"),
        (lambda: pick((0.05, 0.2)), "run_to_run_cv"),
        (lambda: [_law(pick), _law(pick)], "jitter_draws"),
        (lambda: pick((0.5, 0.9)), "jitter_least"),
    ):
        if pick((False,) * (2 if key == "input" else 9) + (True,)):
            load[key] = given()
    if "run_to_run_cv" in load and pick((False, True)):
        load["run_to_run_shared"] = 0.5
    if "shared_cores" in shape and "device_is_host" in shape and pick((False, True)):
        load["busy_core_slowdown"] = pick((0.25, 1.0))
    if "replicas_per_device" in shape and pick((False, True)):
        load["device_work"] = {"base_s": rules.time_s(1, 0, 2), "per_sample_s": rules.time_s(0.25, 0.125)}
    if pick((False,) * 14 + (True,)):
        load["uncertainty"] = {"parameters": ["forward.base_s"], "draws": [[rules.time_s()], [rules.time_s()]]}
    return load


def _transport(pick: Pick, rules: _Rules, shape: Table) -> Table:
    discipline = pick(("fair", "fair", "in-order", "streams", "weighted"))
    transport: Table = {"discipline": discipline}
    if discipline == "streams":
        transport["streams"] = pick((2, 3))
    if discipline == "weighted":
        transport["weight_sigma"] = pick((0.5, 1.0))
        if pick((False, True)):
            transport |= {"queue_s": rules.time_s(0.5, 0, 2), "buffer_s": rules.time_s(1, 4)}
            transport["requests_per_pull"] = pick((1, 0, 2))
        transport["weights_of"] = pick(("message", "transfer"))
    for options, key in (
        ((0.0, 0.0, 0.0, rules.time_s(0.125, 0.5)), "cpu_per_message_s"),
        ((0.0, 0.0, 0.0, rules.per_byte_s(0.25, 1)), "copy_per_byte_s"),
        ((0.0,) * 7 + (0.0 if "shared_cores" in shape else rules.per_byte_s(0.5, 2),), "cpu_per_byte_s"),
        ((None,) * 5 + (rules.rate(0.5, 0.25),), "flow_cap_bytes_per_s"),
        ((0.0,) * 7 + (0.25,), "incast_loss"),
        ((1.0,) * 7 + (1.25,), "wire_bytes_per_byte"),
    ):
        if value := pick(options):
            transport[key] = value
    if "incast_loss" in transport:
        transport["incast_flows"] = pick((1, 2))
    return transport


def _cluster(pick: Pick, rules: _Rules, *, servers: bool, shape: Table) -> Table:
    cluster: Table = {"name": "random", "inter_node": rules.link(), "intra_node": rules.link(4, 1, 16)}
    if pick((False, True)):
        cluster["transport"] = _transport(pick, rules, shape)
    unlike = pick((None,) * 4 + ("speeds", "classes", "classes"))
    if unlike == "speeds":
        cluster["node_speed"] = [pick((1.0, 0.5, 2.0)) for _ in range(pick((1, 2, 3)))]
    elif unlike == "classes":
        cluster["node_classes"] = [_node_class(pick, rules, number) for number in range(pick((1, 2)))]
    if pick((False,) * 7 + (True,)):
        cluster["nics_per_node"] = 2
    if pick((False,) * 6 + (True,)):
        cluster["fabric"] = {
            "nodes_per_leaf": pick((1, 2, 3)),
            "oversubscription": pick((1.0, 2.0, 4.0)),
            "spines": pick((1, 2)),
            "latency_s": rules.short_s(),
        }
    if pick((False,) * (4 if servers else 2) + (True,)):
        cluster["host_link"] = rules.link(2, 1, 8)
        if shape.get("devices_per_node", 1) > 1 and pick((False, True)):
            cluster["devices_per_host_link"] = 2
    if pick((False, False, True)) and not {"shared_cores", "device_is_host", "replicas_per_device"} & set(shape):
        cluster["overlap_slowdown"] = pick((0.5, 1.0))
    if pick((False, False, True)):
        cluster["intra_node_topology"] = "mesh"
    for link, sorts in (("inter_node", ("ethernet", "rdma")), ("intra_node", ("nvlink", "pcie", "host-memory")), ("host_link", ("pcie",))):
        if link in cluster and pick((False,) * 14 + (True,)):
            cluster[link]["sort"] = pick(sorts)
    if "replicas_per_device" in shape:
        if pick((False, True)):
            cluster["device_sharing"] = "concurrent"
        if pick((False, True)):
            cluster["intra_device"] = rules.link(2, 1, 8)
    if pick((False,) * 14 + (True,)):
        cluster["uncertainty"] = {"parameters": ["inter_node.latency_s"], "draws": [[rules.short_s()], [rules.short_s()]]}
    if pick((False,) * 19 + (True,)):
        cluster["available"] = 64  # more than any of these takes
    return cluster


def _neighbours(pick: Pick, rules: _Rules) -> Table:
    """What others send, and nodes that are slow for a while or for good."""
    table: Table = {}
    if pick((False,) * 3 + (True,)):
        background: Table = {"on": pick(("inter-node", "inter-node", "intra-node", "fabric"))}
        how = pick(("load", "flows", "both", "drawn", "trace", "trace", "trace"))
        if how in ("load", "both"):
            background["load"] = pick((0.5, 0.25, 0.3))
        if how in ("flows", "both"):
            background["flows"] = pick((1, 2, 3))
        if how == "drawn":
            background |= {"load": [0.25, 0.75], "each_link": pick((False, True))}
        if how == "trace":
            ends_s, trace = 0.0, []
            for _ in range(pick((2, 1, 3, 4))):
                trace.append({"at_s": ends_s, "load": pick((0.0, 0.5, 0.75, 0.3)), "flows": pick((0, 0, 1, 2))})
                ends_s += rules.time_s(1, 2, 0.5, 0.25, 7)
            background |= {"trace": trace, **pick(({"repeat_s": ends_s}, {"repeat_s": ends_s}, {}))}
        if pick((False, False, True)):
            background["nodes"] = pick(([0], [1], [0, 2]))
        table["background"] = background
    if pick((False,) * 7 + (True,)):
        table["slow_nodes"] = pick(({"share": 0.5, "factor": 2.0}, {"share": 0.5, "factor": [1.5, 2.0]}, {"spread_cv": 0.125}))
    if pick((False,) * 7 + (True,)):
        of = pick(("device", "node", "rack", "cluster"))
        table["slowdown"] = {"factor": 2.0, "mean_slow_steps": 2.0, "mean_normal_steps": pick((2.0, 5.0)), "of": of}
    return table


def _node_class(pick: Pick, rules: _Rules, number: int) -> Table:
    kind: Table = {"name": f"class {number}", "nodes": pick((1, 1, 2)), "speed": pick((1.0, 0.5, 2.0))}
    if pick((False, True)):
        kind["jitter"] = _law(pick)
    if pick((False, True)):
        kind["slowdown"] = {"factor": pick((2.0, 4.0)), "mean_slow_steps": 2.0, "mean_normal_steps": pick((2.0, 5.0))}
    if pick((False, True)):
        kind["inter_node"] = rules.link()
    return kind


def _layers(pick: Pick, rules: _Rules, load: Table) -> list[Table]:
    """One layer for each variable, some of which can be split or have experts."""
    layers = []
    for number in range(len(load["variables"])):
        layer: Table = {
            "name": f"layer {number}",
            "forward": float(pick((1, 1, 1, 2, 0.5))),
            "backward": float(pick((2, 2, 1, 0))),
            "variables": [number],
            "output_bytes_per_sample": rules.size_bytes() / 4,
            "kept_bytes_per_sample": rules.size_bytes() / 4,
        }
        if pick((True, True, True, False)):
            size_bytes = rules.size_bytes() / 4
            layer["tensor"] = {
                "divided": pick((1.0, 0.75)),
                "forward_bytes_per_sample": pick(([size_bytes] * 2, [size_bytes], [])),
                "backward_bytes_per_sample": pick(([size_bytes] * 2, [])),
            }
        if pick((False, False, True)):
            layer["selective_work"] = 0.25
        if pick((False, False, True)):
            layer["frozen_bytes"] = rules.size_bytes() / 4
        if pick((False, False, True)):
            layer["experts"] = {
                "count": 4,
                "used": pick((1, 2)),
                "work": 0.5,
                "bytes_per_sample": rules.size_bytes() / 4,
                "variables": [number],
                "frozen_bytes": pick((0.0, rules.size_bytes() / 4)),
                "launched": pick((0.0, 0.5)),
            }
        layers.append(layer)
    if pick((False, True)):
        for layer in layers:
            layer["kernels"] = pick((10.0, 3.0))
    return layers


def _hybrid(pick: Pick, rules: _Rules, load: Table, cluster: Table, run: Table) -> tuple[Table, Table]:
    """Degrees, schedules and shards, and micro-batches that fit them."""
    per_node = cluster.get("devices_per_node", 1)
    pipeline, tensor, copies = pick((1, 2, 2, 3)), pick((1, 1, 1, 2, 4)), pick((1, 1, 2, 2, 4))
    pipeline = min(pipeline, len(load["layers"]))
    tensor = tensor if not (per_node % tensor and tensor % per_node) and any("tensor" in its for its in load["layers"]) else 1
    if tensor > per_node:
        cluster.pop("node_classes", None)
        cluster.pop("node_speed", None)
    experts = any("experts" in its for its in load["layers"])
    strategy: Table = {
        "kind": "hybrid",
        "workers": pipeline * tensor * copies,
        "pipeline": pipeline,
        "tensor": tensor,
        "expert": pick((1, copies, min(copies, 2))) if experts else 1,
        "schedule": pick(("1f1b", "gpipe", "zero-bubble", *("interleaved",) * 4, "pipedream")),
        "stages": pick(("balanced", "balanced", "even")),
        "sequence_parallel": pick((False, True)),
        "order": pick(("data", "pipeline")),
        "algorithm": pick(("ring", "ring", "bidirectional-ring", "halving-doubling", "double-binary-tree", "auto")),
        "protocol": pick(("none", "none", "simple", "ll", "ll128", "auto")),
    }
    if strategy["algorithm"] in ("double-binary-tree", "auto"):
        strategy["pipeline_chunk_bytes"] = rules.size_bytes()
    if "host_link" in cluster and pick((False, True)):
        strategy |= {"on_host": ["layer 0"], "host_factor": pick((1.0, 3.0))}
    if strategy["schedule"] == "zero-bubble" and pick((False, True)):
        strategy["weights_share"] = 0.25
    if pick((False, False, True)):
        load["forward"]["least_s"] = rules.time_s(1, 4)
    training: Table = {"micro_batches": pick((4, 2, 1)), "recompute": pick(("none", "none", "full", "selective"))}
    training |= pick(({}, {"launch": "eager"}, {"launch": "graph"}))
    if strategy["schedule"] == "interleaved":
        if pipeline > 1 and 2 * pipeline <= len(load["layers"]):
            strategy["chunks"] = 2
        else:
            strategy["schedule"] = "1f1b"
    if strategy["schedule"] == "pipedream":
        training["micro_batches"] = 1
    else:
        strategy["shard"] = pick(("none", "none", "optimizer", "gradients", "parameters"))
        if strategy["shard"] != "none" and pick((False, True)):
            strategy["shard_group"] = pick((copies, max(copies // 2, 1)))
        if strategy["shard"] == "parameters":
            strategy["prefetch"] = pick((1, 0, 2))
        if strategy["shard"] in ("gradients", "parameters") and pick((False, True)):
            strategy["keep_gathered"] = pick((True, False))
    if pick((False, False, True)):
        training |= {"precision": "mixed_bfloat16", "precision_factor": [0.5, 0.5], "precision_source": "drawn"}
        strategy["reduce_precision"] = pick(("float32", "compute"))
    if len(load["layers"]) > 1 and pick((False, False, True)):
        load["layers"][-1]["tied"] = [0]
    if pick((False, True)):
        strategy["bucket_size_bytes"] = rules.size_bytes()
    if experts and pick((False, True)):
        strategy |= {"expert_imbalance": {"kind": "empirical", "values": [1.0, 1.5, 2.0]}, "capacity": pick((None, 1.25))}
        strategy["pad_to_capacity"] = strategy["capacity"] is not None and pick((False, True))
    run["warmup_steps"] = max(run.get("warmup_steps", 1), pipeline - 1)
    run["steps"] = max(run["steps"], run["warmup_steps"] + 2)
    return strategy, training


def _split_sequences(pick: Pick, rules: _Rules, load: Table, strategy: Table) -> None:
    strategy |= {"workers": 2 * strategy["workers"], "context": 2}
    load["layers"][-1]["attention"] = {"bytes_per_sample": rules.size_bytes() / 4, "work": pick((0.0, 0.5))}
    if strategy["expert"] in (1, 2) and any("experts" in layer for layer in load["layers"]) and pick((False, True)):
        strategy["expert"] *= 2
        strategy.pop("shard_group", None)


def _servers(pick: Pick, rules: _Rules, mode: str, workers: int, load: Table, cluster: Table, run: Table) -> Table:
    strategy: Table = {"kind": "parameter-server", "mode": mode, "servers": pick(range(1, min(len(load["variables"]), 4) + 1))}
    if mode == "ssp":
        strategy["bound"] = pick((0, 1, 2))
    if mode == "sync" and workers > 1 and pick((False, True)):
        strategy["backup_workers"] = pick(range(1, min(workers, 3)))
        if not {"device_is_host", "replicas_per_device"} & set(cluster) and pick((False, True)):
            strategy["late_workers"] = "cancel"
    if pick((False, False, True)):
        strategy["partitioner"] = dict(
            pick((
                {"kind": "fixed-shards", "shards": 2}, {"kind": "fixed-shards", "shards": 3},
                {"kind": "max-size", "shard_size_bytes": rules.size_bytes()},
                {"kind": "min-size", "shards": 3, "shard_size_bytes": rules.size_bytes()},
            ))
        )  # fmt: skip
        strategy["servers"] = pick(range(1, 4))
    strategy["pull_order"] = pick(("forward", "random", "together"))
    strategy["server_placement"] = pick(("dedicated", "colocated"))
    strategy["variable_placement"] = pick(("round-robin", "greedy", "traffic"))
    driver = pick((None, None, "coordinator", "in-graph"))
    if driver == "coordinator" and mode == "async":
        strategy["coordinator"] = {"dispatch_s": rules.short_s(), "latency_s": rules.short_s()}
    elif driver == "in-graph":
        strategy["replication"] = "in-graph"
        load["input_bytes_per_sample"] = pick((1e4, 2.0**18))
    if pick((False, False, False, True)):
        run["grouping"] = "per-server"
    return strategy


def _all_reduce(pick: Pick, rules: _Rules, kind: str, ranks: int, load: Table, cluster: Table, run: Table) -> Table:
    per_node = cluster.get("devices_per_node", 1) * cluster.get("replicas_per_device", 1)
    among = "ring", "bidirectional-ring", "halving-doubling", "double-binary-tree", "auto"
    if kind == "mirrored":
        if per_node == 1:
            cluster["devices_per_node"] = per_node = pick((2, 3, 4, 6))
        ranks = pick(range(1, per_node + 1))
    if ranks <= per_node:
        among += ("reduce-to-one-device", "hierarchical-copy") * 2
    if not ranks % per_node or ranks <= per_node:
        among += ("hierarchical",)
    strategy: Table = {
        "kind": kind,
        "algorithm": pick(among),
        "protocol": pick(("none", "none", "none", "simple", "ll", "ll128", "auto")),
    }
    if kind == "mirrored":
        strategy["replicas"] = ranks
    if strategy["algorithm"] in ("double-binary-tree", "auto"):
        strategy["pipeline_chunk_bytes"] = rules.size_bytes()
    steps = run["steps"] - run.get("warmup_steps", max(1, run["steps"] // 10))
    every = pick((1, 1, 1, 1, 2, 3))
    if every > 1 and every <= steps:
        strategy["sync_every"] = every
    elif pick((False, True, True)):
        strategy["bucket_size_bytes"] = rules.size_bytes()
    # what is simulated for all ranks at once only
    slowed = "overlap_slowdown" in cluster
    together = not {"replicas_per_device", "shared_cores"} & set(cluster)
    how = pick(("", "", "messages", "at-once", "forward", "forward", "fusion cycle", "fusion cycle", *("through host",) * 4))
    if how == "messages" and not slowed:
        run["detail"] = "messages"
    elif how == "at-once" and "shared_cores" not in cluster:
        run["detail"] = "at-once"
    elif together and how == "through host" and "host_link" in cluster:
        strategy["through_host"] = True
    elif together and not slowed and "sync_every" not in strategy:
        if how in ("forward", "fusion cycle"):
            strategy.setdefault("bucket_size_bytes", rules.size_bytes())
        if how == "forward" or (how == "fusion cycle" and pick((False, False, True))):
            strategy["priority"] = "forward"
        if how == "fusion cycle":
            strategy["fusion_cycle_s"] = rules.time_s(1, 0.5, 3)
    return strategy


def _run(pick: Pick, rules: _Rules, mode: str, ranks: int) -> Table:
    steps = pick((3, 4, 6, 8, 12))
    run: Table = {"steps": steps, "seed": pick(range(50)), "replications": 2}
    warmup = pick((None, None, 0, 1, 2))
    if warmup is not None:
        run["warmup_steps"] = warmup
    start = pick((None, "together", "together", "random-phase", "staggered"))
    if start is not None:
        run["start"] = start
    if start == "staggered":
        run["start_spread_s"] = rules.time_s(1, 4, 0.5)
    if mode in ("async", "ssp"):
        length = pick((None, None, "each-its-own", "job"))
        if length == "each-its-own":
            run["sharing"] = length
        elif length == "job":
            run |= {"job_steps": pick((7, 10, 20)), "warmup_steps": pick((0, 0, 1))}
        if (mode == "async" or length == "each-its-own") and pick((False, True)):
            run["drain"] = True
    return run


# -- from tables to scenarios ----------------------------------------------------------------


def built(table: Table) -> Scenario | None:
    """The scenario, or none where the table breaks a rule."""
    try:
        return scenario_from_table(table, "random")
    except ScenarioError:
        return None


def random_scenarios() -> st.SearchStrategy[Scenario]:
    """Scenarios for Hypothesis."""

    @st.composite
    def tables(draw: st.DrawFn) -> Table:
        return random_table(lambda options: draw(st.sampled_from(options)))

    return tables().map(built).filter(lambda scenario: scenario is not None)  # type: ignore[return-value]


def scenario_of_seed(seed: int) -> Scenario | None:
    """The scenario of a number; none where its table breaks a rule."""
    return built(random_table(random.Random(seed).choice))


def seeded_scenarios(count: int) -> Iterator[Scenario]:
    """As many scenarios, always the same."""
    seed = 0
    while count:
        if (scenario := scenario_of_seed(seed)) is not None:
            count -= 1
            yield scenario
        seed += 1


def untied(scenario: Scenario) -> Scenario | None:
    """The same with every length a little off any other, and chance that is continuous, so that no two events fall into one instant.

    None where they would all the same, and nothing says which is first: processes that share cores are queued; workers that an update
    lets go on draw the weights of their pulls; shards of equal size come and go together; and so do messages of a collective that take
    turns. None too where a strategy is simulated for all ranks at once alone.
    """
    strategy, transport = scenario.strategy, scenario.cluster.transport
    if (
        scenario.cluster.shared_cores is not None
        or (transport.weight_sigma is not None and getattr(strategy, "mode", "") == "sync")
        or (transport.at_a_time is not None and strategy.reduction is not None)
        or getattr(strategy, "partitioner", None) is not None
        or getattr(strategy, "priority", "ready") == "forward"
    ):
        return None
    table = scenario.model_dump()
    places = itertools.count(1)
    load, machines = table["workload"], table["cluster"]
    for part in (load["variables"], load["server"], machines["inter_node"], machines["transport"]):
        _stretch(part, places)
    law = {"kind": "gamma", "shape": 9.0}
    load |= {"jitter": law, "jitter_draws": (), "jitter_least": None}
    for kind in machines["node_classes"]:
        kind["jitter"] = law if kind["jitter"] is not None else None
    if table.get("input"):
        table["input"]["jitter"] = law
    table["run"] |= {"start": "staggered", "start_spread_s": math.pi * 1e-3}
    try:
        return Scenario.model_validate(table)
    except ValidationError:
        return None


def _stretch(part: Any, places: Iterator[int]) -> None:
    """Make all lengths in a part of a scenario longer, each by another share of a hundredth."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part or ()):
        if isinstance(value, dict | list | tuple):
            _stretch(value, places)
        elif isinstance(value, float) and value > 0 and isinstance(part, dict) and key.endswith(_LENGTHS):
            part[key] = value * (1 + 0.01 * (next(places) * _GOLDEN % 1))


# -- of fewer mechanisms ---------------------------------------------------------------------

_LAWS_OF_JITTER = st.sampled_from(
    [
        {"kind": "constant"},
        {"kind": "exponential"},
        {"kind": "gamma", "shape": 4.0},
        {"kind": "lognormal", "sigma": 0.5},
        {"kind": "shifted-exponential", "tail": 0.2},
        {"kind": "empirical", "values": [1.0, 1.0, 7.0]},
        {"kind": "exponential", "persistence": 0.6},
        {"kind": "lognormal", "sigma": 0.5, "persistence": 1.0},
    ]
)
_SECONDS = st.sampled_from([0.0, 1e-6, 3e-4, 2e-3])
_LINKS = st.fixed_dictionaries({"bandwidth_bytes_per_s": st.sampled_from([1e7, 1e8, 1e9, 1e12]), "latency_s": _SECONDS})


@st.composite
def _plain_workloads(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.sampled_from([4.0, 1e3, 1e5, 1e6, 3e6]), min_size=count, max_size=count))
    order = draw(st.permutations(range(count)))
    ready = sorted(draw(st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.5, 0.9, 1.0]), min_size=count, max_size=count)))
    sparse = draw(st.booleans())
    variables = [{"name": f"v{i}", "size_bytes": sizes[i], "creation_index": order[i], "ready": ready[i]} for i in range(count)]
    if sparse:
        variables[0]["sparse_bytes_per_sample"] = 100.0
    return {
        "jitter": draw(_LAWS_OF_JITTER),
        "apply": None,
        "apply_s": draw(_SECONDS),
        "input": {"base_s": draw(_SECONDS), "per_sample_s": 0.0},
        "server": {"base_s": draw(_SECONDS), "per_byte_s": draw(st.sampled_from([0.0, 1e-10, 1e-9]))},
        "variables": variables,
    }


@st.composite
def plain_scenarios(draw: st.DrawFn) -> Scenario:
    """Scenarios for Hypothesis whose every time and rate can be scaled: no transport of its own, no classes of nodes."""
    workers = draw(st.integers(1, 9))
    load = {key: value for key, value in draw(_plain_workloads()).items() if value is not None}
    kind = draw(st.sampled_from(["single", "mirrored", "multi-worker-mirrored", "parameter-server"]))
    cluster = {
        "devices_per_node": draw(st.sampled_from([1, 2, 4])),
        "replicas_per_device": draw(st.sampled_from([1, 1, 2])),
        "node_speed": draw(st.lists(st.sampled_from([0.3, 1.0, 2.0]), max_size=3)),
        "inter_node": draw(_LINKS),
        "intra_node": draw(_LINKS),
    }
    bucket = draw(st.sampled_from([{}, {"bucket_size_bytes": 1e5}]))
    messages = {"detail": draw(st.sampled_from(["auto", "messages"]))}
    strategy = {"kind": kind}
    if kind == "mirrored":
        strategy |= {"replicas": min(workers, cluster["devices_per_node"] * cluster["replicas_per_device"])} | bucket | messages
    elif kind == "multi-worker-mirrored":
        strategy |= {"workers": workers} | bucket | messages
    elif kind == "parameter-server":
        strategy |= {
            "mode": draw(st.sampled_from(["sync", "async"])),
            "workers": workers,
            "servers": draw(st.integers(1, len(load["variables"]))),
            "server_placement": draw(st.sampled_from(["dedicated", "colocated"])),
            "variable_placement": draw(st.sampled_from(["round-robin", "greedy", "traffic"])),
            "grouping": draw(st.sampled_from(["none", "per-server"])),
        }
    start = draw(st.sampled_from([{}, {"start": "random-phase"}, {"start": "staggered", "start_spread_s": 0.05}]))
    table = scenario_table(
        workload=load, cluster=cluster, strategy=strategy, run={"steps": 8, "warmup_steps": 2, "seed": draw(st.integers(0, 99)), **start}
    )
    del table["workload"]["apply"]
    return scenario_from_table(table, "random")
