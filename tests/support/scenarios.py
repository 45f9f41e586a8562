"""Small scenarios as tables, for all tests."""

from __future__ import annotations

from typing import Any


def scenario_table(**parts: Any) -> dict[str, Any]:
    """A small, deterministic scenario; give sections to overlay them.

    Workers start together and pull in the order of need, and messages cost hosts nothing, as
    closed forms have it, where real ones do not; intervals hold chance and draws alone, not what the model is off by.
    How a strategy is simulated (``detail``, ``grouping``) may stand beside what it is.
    """
    table: dict[str, Any] = {
        "workload": {
            "name": "plain",
            "batch_per_replica": 10,
            "forward": {"base": "1 ms", "per_sample": "100 us"},
            "backward": {"base": "2 ms", "per_sample": "200 us"},
            "apply": "500 us",
            "variables": [{"name": "kernel", "size": "1 MB", "creation_index": 0, "ready": 1.0}],
        },
        "cluster": {"name": "lab", "inter_node": {"bandwidth": "1 GB/s", "latency": "0 s"}, "intra_node": {"bandwidth": "10 GB/s"}},
        "strategy": {"kind": "single"},
        "run": {"steps": 20, "warmup_steps": 2, "replications": 2, "seed": 3, "start": "together"},
        "discrepancy": {},
    }
    for section, values in parts.items():
        table[section] = values if section == "strategy" else {**table.get(section, {}), **values}
    how = {key: value for key, value in table["strategy"].items() if key in ("detail", "grouping")}
    if how:
        table["strategy"] = {key: value for key, value in table["strategy"].items() if key not in how}
        table["run"] = {**how, **table["run"]}
    if table["strategy"].get("kind") == "parameter-server":
        table["strategy"] = {"pull_order": "forward", **table["strategy"]}
        if isinstance(table["cluster"], dict):
            table["cluster"] = {**table["cluster"], "transport": {"software": "given", **table["cluster"].get("transport", {})}}
    return table
