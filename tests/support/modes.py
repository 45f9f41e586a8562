"""One small scenario for each way of training and each part of a cluster that changes how it goes."""

from __future__ import annotations

from typing import Any

LOAD: dict[str, Any] = {
    "jitter": {"kind": "exponential"},
    "variables": [
        {"name": f"v{i}", "size_bytes": 1e6 * (i + 1), "creation_index": 3 - i, "ready": (i + 1) / 4, "rows": 100} for i in range(4)
    ],
    "server": {"base": "20 us", "per_byte_s": 1e-11},
    "input": {"base": "2 ms", "per_sample": "0 s"},
    "input_bytes_per_sample": 1e4,
    "layers": [
        {
            "name": f"layer {i}",
            "forward": 1.0,
            "variables": [i],
            "output_bytes_per_sample": 1e4,
            "tensor": {"forward_bytes_per_sample": [1e4], "backward_bytes_per_sample": [1e4]},
        }
        for i in range(4)
    ],
}

_PS: dict[str, Any] = {"kind": "parameter-server", "workers": 4}
_ASYNC: dict[str, Any] = {**_PS, "mode": "async"}
_SYNC: dict[str, Any] = {**_PS, "mode": "sync"}
_RING: dict[str, Any] = {"kind": "multi-worker-mirrored", "workers": 4}
_HYBRID: dict[str, Any] = {"kind": "hybrid", "workers": 4}
_HOST: dict[str, Any] = {"host_link": {"bandwidth": "10 GB/s", "latency": "3 us"}}
_CLASSES: dict[str, Any] = {
    "node_classes": [
        {"name": "slow", "nodes": 1, "speed": 0.5, "slowdown": {"factor": 4.0, "mean_slow_steps": 5.0, "mean_normal_steps": 5.0}},
        {
            "name": "thin",
            "nodes": 1,
            "inter_node": {"bandwidth": "0.3 GB/s", "latency": "50 us"},
            "jitter": {"kind": "gamma", "shape": 2.0},
        },
    ]
}
_SHARDS: dict[str, Any] = {"partitioner": {"kind": "fixed-shards", "shards": 3}}

MODES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "single": ({"kind": "single"}, {}, {}),
    "async": ({**_ASYNC, "servers": 2}, {}, {}),
    "async, per server": ({**_ASYNC, "servers": 2}, {}, {"grouping": "per-server"}),
    "async, together": ({**_ASYNC, "servers": 2, "pull_order": "together", "variable_placement": "greedy"}, {}, {}),
    "async, random order, shards": ({**_ASYNC, "servers": 3, "pull_order": "random", **_SHARDS}, _HOST, {}),
    "async, coordinator": ({**_ASYNC, "coordinator": {"dispatch": "1 ms", "latency": "2 ms"}}, {}, {}),
    "async, in graph": ({**_ASYNC, "replication": "in-graph"}, {}, {}),
    "async, colocated": ({**_ASYNC, "servers": 2, "server_placement": "colocated"}, {"device_is_host": True}, {}),
    "async, slower beside messages": (_ASYNC, {"overlap_slowdown": 0.5}, {}),
    "async, classes of nodes": (_ASYNC, _CLASSES, {}),
    "async, random weights": (_ASYNC, {"transport": {"discipline": "weighted", "weight_sigma": 0.5}}, {}),
    "async, weights of transfers": (
        {**_ASYNC, "servers": 2},
        {"transport": {"discipline": "weighted", "weight_sigma": 0.5, "weights_of": "transfer"}},
        {},
    ),
    "async, in order": (_ASYNC, {"transport": {"discipline": "in-order", "cpu_per_message": "10 us"}}, {}),
    "async, streams": (_ASYNC, {"transport": {"discipline": "streams", "streams": 2, "cpu_per_byte_s": 1e-10}}, {}),
    "async, capped flows": (_ASYNC, {"transport": {"flow_cap": "0.4 GB/s", "wire_bytes_per_byte": 1.05}}, {}),
    "async, incast": (_ASYNC, {"transport": {"incast_loss": 0.1, "incast_flows": 2}}, {}),
    "async, copies": ({**_ASYNC, "servers": 2}, {"transport": {"copy_per_byte_s": 3e-10, "cpu_per_message": "10 us"}}, {}),
    "async, copies in order": (_ASYNC, {"transport": {"discipline": "in-order", "copy_per_byte_s": 3e-10}}, {}),
    "async, shared cores": (
        {**_ASYNC, "servers": 2, "coordinator": {"dispatch": "1 ms", "latency": "2 ms"}},
        {"shared_cores": 3.0, "device_is_host": True, "transport": {"copy_per_byte_s": 3e-10, "cpu_per_message": "10 us"}},
        {"job_steps": 90, "drain": True},
    ),
    "in graph, shared cores": ({**_ASYNC, "replication": "in-graph"}, {"shared_cores": 1.0, "transport": {"copy_per_byte_s": 3e-10}}, {}),
    "async, leaves": (
        {**_ASYNC, "servers": 2},
        {"fabric": {"nodes_per_leaf": 2, "oversubscription": 2.0, "spines": 2, "latency": "4 us"}},
        {},
    ),
    "async, job drained": (_ASYNC, {}, {"job_steps": 90, "drain": True}),
    "async, each its own": (_ASYNC, {}, {"sharing": "each-its-own"}),
    "async, staggered": (_ASYNC, {}, {"start": "staggered", "start_spread": "20 ms"}),
    "async, random phase": (_ASYNC, {}, {"start": "random-phase"}),
    "ssp": ({**_PS, "mode": "ssp", "bound": 1}, {}, {}),
    "ssp, bound 0": ({**_PS, "mode": "ssp", "bound": 0, "servers": 2}, _CLASSES, {}),
    "sync": (_SYNC, {}, {}),
    "sync, backups finish": ({**_SYNC, "backup_workers": 1}, {}, {}),
    "sync, backups stop": ({**_SYNC, "backup_workers": 2, "late_workers": "cancel"}, {}, {}),
    "sync, backups stop, slowed": ({**_SYNC, "backup_workers": 1, "late_workers": "cancel", "servers": 2}, {"overlap_slowdown": 0.4}, {}),
    "ring": (_RING, {}, {}),
    "ring, messages": (_RING, _CLASSES, {"detail": "messages"}),
    "ring, copies": ({**_RING, "bucket_size": "1 MB"}, {"transport": {"copy_per_byte_s": 3e-10}}, {}),
    "ring, shared cores": (
        {**_RING, "bucket_size": "1 MB"},
        {"shared_cores": 2.0, "device_is_host": True, "transport": {"copy_per_byte_s": 3e-10}},
        {},
    ),
    "mirrored, shared cores": ({"kind": "mirrored"}, {"shared_cores": 2.0, "device_is_host": True, "devices_per_node": 4}, {}),
    "sync, backups on shared cores": (
        {**_SYNC, "server_placement": "colocated", "backup_workers": 1},
        {"shared_cores": 2.0, "time_slice": "1 ms", "device_is_host": True, "devices_per_node": 2, "transport": {"copy_per_byte_s": 3e-10}},
        {},
    ),
    "ring, buckets": ({**_RING, "bucket_size": "1 MB"}, _CLASSES, {}),
    "ring, forward": ({**_RING, "bucket_size": "1 MB", "priority": "forward"}, {}, {}),
    "ring, cycles": ({**_RING, "bucket_size": "4 MB", "fusion_cycle": "1 ms"}, {}, {}),
    "ring, through hosts": ({**_RING, "bucket_size": "1 MB", "through_host": True}, _HOST, {}),
    "ring, slowed": ({**_RING, "bucket_size": "1 MB"}, {"overlap_slowdown": 0.3}, {}),
    "local SGD": ({**_RING, "sync_every": 4}, {}, {}),
    "local SGD, messages": ({**_RING, "sync_every": 4}, {}, {"detail": "messages"}),
    "shared devices": ({**_RING, "bucket_size": "1 MB"}, {"replicas_per_device": 2}, {}),
    "automatic": ({**_RING, "algorithm": "auto", "protocol": "auto"}, {}, {}),
    "both ways": ({**_RING, "algorithm": "bidirectional-ring"}, {}, {}),
    "trees": ({**_RING, "algorithm": "double-binary-tree"}, {}, {}),
    "halving": ({**_RING, "algorithm": "halving-doubling"}, {}, {"detail": "messages"}),
    "hierarchical": ({**_RING, "algorithm": "hierarchical"}, {"devices_per_node": 2}, {}),
    "to one device": ({"kind": "mirrored", "replicas": 4, "algorithm": "reduce-to-one-device"}, {"devices_per_node": 4}, {}),
    "DDP": ({"kind": "torch-ddp", "workers": 4, "first_bucket_size": "1 MB", "bucket_size": "4 MB"}, {"devices_per_node": 2}, {}),
    "Keras data parallel": ({"kind": "keras-data-parallel", "workers": 2, "bucket_size": "4 MB"}, {"devices_per_node": 2}, {}),
    "gossip": ({"kind": "gossip", "workers": 5}, {"devices_per_node": 2}, {}),
    "pipeline": ({**_HYBRID, "pipeline": 2, "bucket_size": "2 MB"}, _CLASSES, {}),
    "pipeline, asynchronous": ({**_HYBRID, "pipeline": 4, "schedule": "pipedream"}, {}, {"warmup_steps": 3}),
    "tensors split": ({**_HYBRID, "tensor": 2}, {"devices_per_node": 2}, {}),
    "stages of split tensors": ({**_HYBRID, "pipeline": 2, "tensor": 2}, {"devices_per_node": 4}, {}),
    "state shared": ({**_HYBRID, "shard": "gradients", "bucket_size": "2 MB"}, {}, {}),
    "parameters shared": ({**_HYBRID, "shard": "parameters", "shard_group": 2}, {"devices_per_node": 2}, {}),
    "in two groups": ({"kind": "mirrored", "replicas": 4, "algorithm": "hierarchical-copy"}, {"devices_per_node": 4}, {}),
}
"""Strategy, cluster and run of each, to overlay the sample scenario with; the workload is :data:`LOAD`."""
