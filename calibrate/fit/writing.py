"""Writes fitted workloads, clusters and input pipelines as commented TOML, and collects their provenance.

Keys and values are those of the specifications in ``simulator/spec``; comments and layout are made here. A file counts as fitted
by ``provenance.command`` (:mod:`simulator.base.files`); other keys of the provenance are read by name in ``paceline.api.calibrating``
and ``paceline.cli``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Table

from calibrate.measurements import FRAMEWORKS, Measurements, Note, Ready, WarmUp
from calibrate.xplane.steps import StepsOfProfile
from simulator.base.files import Output, fitted_kind
from simulator.base.text import format_bytes, format_rate, format_seconds
from simulator.spec.cluster import Cluster
from simulator.spec.input_pipeline import InputPipeline
from simulator.spec.workload import Workload

WORKLOAD, CLUSTER, INPUT = fitted_kind("workload", "forward"), fitted_kind("cluster", "inter_node"), fitted_kind("input", "work")
"""Files that a new calibration may replace."""

_HEADS = {
    "workload": "Fitted by `paceline calibrate`. Seconds and bytes; base_s + per_sample_s * batch.",
    "cluster": "Fitted by `paceline calibrate-link`. Seconds, bytes, bytes per second.",
    "server": "Fitted by `paceline calibrate-server`: what gRPC costs hosts (transport), beside a link. Seconds, bytes, bytes per second.",
    "input": "Fitted by `paceline calibrate-input`. Seconds and bytes; a batch takes max(serial, parallel / parallel_calls).",
}
_INLINE = {"jitter_draws": "laws of jitter as they might have come out: fitted to bootstrap samples of the rounds; each run takes one"}
"""Tables that are written one per line, with a comment above."""
_COMMENTS = {
    "forward": "forward pass",
    "backward": "backward pass",
    "jitter": "law of a step's time around its mean, chosen by an information criterion",
    "server": "what a parameter server needs to apply one gradient tensor",
    "variables": "in the order in which their gradients become ready; ready is a share of the backward pass",
    "counted": "what a step asks of any device, counted from its graph; bytes as if no operation were fused with another",
    "overheads": "what a job spends beside steps; value, and 90% interval over runs",
    "noise_scale": "samples of the batch whose gradient has as much noise as signal, over a whole training (provenance.noise_scale)",
    "layers": "in the order of the forward pass; forward and backward in seconds of one batch size (provenance.layers), and used as shares",
    "calibrated": "measured within; results beyond warn",
    "uncertainty": "joint bootstrap draws of the fitted parameters",
    "fit": "how well the curves describe what was measured",
    "transport": "what messages between nodes cost hosts",
    "fit_hosts": "how well the hosts' work on tensors and bytes describes pulls and pushes",
    "inter_node": "between nodes",
    "work": "of a batch: in every epoch, or where the pipeline caches, in the first",
    "cached": "of a batch in epochs after the first",
}


def write_workload(workload: Workload, path: Path, *, force: bool = False) -> Path:
    """Write a workload file, whole or not at all; returns the path.

    Raises
    ------
    InputError
        It cannot be written, or without ``force``, something else is there than a workload that was fitted.
    """
    return Output(path, WORKLOAD, force=force).write(workload_text(workload))


def write_cluster(cluster: Cluster, path: Path, *, force: bool = False) -> Path:
    """Write a cluster file; errors as of :func:`write_workload`."""
    return Output(path, CLUSTER, force=force).write(cluster_text(cluster))


def write_input(pipeline: InputPipeline, path: Path, *, force: bool = False) -> Path:
    """Write the file of an input pipeline; errors as of :func:`write_workload`."""
    return Output(path, INPUT, force=force).write(input_text(pipeline))


def workload_text(workload: Workload) -> str:
    """What a workload file holds."""
    return _text(workload.model_dump(mode="json", exclude_none=True), "workload", "workload")


def cluster_text(cluster: Cluster) -> str:
    """What a cluster file holds."""
    data = cluster.model_dump(mode="json", exclude_none=True)
    # left out: what was not measured keeps its default, and a reader is not misled
    for key in ("intra_node", "devices_per_node", "replicas_per_device", "node_speed", "device"):
        if key not in cluster.model_fields_set or not data.get(key):
            data.pop(key, None)
    return _text(data, "cluster" if cluster.fit_hosts is None else "server", "cluster")


def input_text(pipeline: InputPipeline) -> str:
    """What the file of an input pipeline holds."""
    data = pipeline.model_dump(mode="json", exclude_none=True)
    first: dict[str, Any] = {key: data.pop(key) for key in ("name", "description") if key in data}
    settings = {key: getattr(pipeline, key) for key in ("parallel_calls", "prefetch", "shuffle_buffer")}
    return _text({**first, **settings, **data}, "input", "input")


def _text(data: dict[str, Any], head: str, kind: str) -> str:
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEADS[head]))
    document.add(tomlkit.comment(f'Use it in a scenario: [{kind}] use = "{data["name"]}"'))
    document.add(tomlkit.nl())
    data = {key: value for key, value in data.items() if value not in ({}, [])}
    tables = {key: value for key, value in data.items() if key not in _INLINE and _is_table(value)}
    for key, value in data.items():
        if key not in tables:
            if key in _INLINE:
                document.add(tomlkit.comment(_INLINE[key]))
            _add(document, key, value)
    for key, value in tables.items():
        if isinstance(value, dict):
            table = _table(value)
            if key in _COMMENTS:
                table.comment(_COMMENTS[key])
            document.add(key, table)
        else:
            if key in _COMMENTS:
                document.add(tomlkit.comment(_COMMENTS[key]))
            rows = tomlkit.aot()
            for row in value:
                rows.append(_table(row))
            document.add(key, rows)
    return tomlkit.dumps(document)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _table(data: dict[str, Any]) -> Table:
    table = tomlkit.table()
    for key, value in data.items():
        if isinstance(value, dict) and value:
            table.add(key, _table(value))
        elif value not in ({}, []):
            _add(table, key, value)
    return table


def _add(table: Any, key: str, value: Any) -> None:
    """One key; long arrays with one item per line, quantities with a comment in the unit that one reads."""
    if isinstance(value, list):
        array = tomlkit.array()
        for item in value:
            if isinstance(item, dict):
                row = tomlkit.inline_table()
                row.update(item)
                item = row
            array.append(item)
        table.add(key, array.multiline(bool(value) and isinstance(value[0], (list, dict))))
        return
    table.add(key, value)
    if shown := _shown(key, value):
        table[key].comment(shown)


def _shown(key: str, value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        if key.endswith("_bytes_per_s"):
            return format_rate(value)
        if key.endswith("_bytes") and value >= 1024:
            return format_bytes(value)
        if key.endswith("_s") and value < 1 and "per_byte" not in key:
            return format_seconds(value)
    return ""


def provenance(runs: Sequence[Measurements], command: str) -> dict[str, str]:
    """What a reader needs to judge, and to repeat, the measurement.

    Parameters
    ----------
    runs
        The raw measurements, one a run.
    command
        The command line, or "" from Python.
    """
    measured = runs[0]
    fingerprint = measured.fingerprint
    known = fingerprint.model_dump()
    facts = {
        **made(command),
        "measured": measured.header.started,
        "runs": str(len(runs)),
        "measurements": " ".join(run.path.name for run in runs),
        "measurements_sha256": " ".join(run.sha256 for run in runs),
        fingerprint.backend: getattr(fingerprint, fingerprint.backend),
        "python": fingerprint.python,
        "device": f"{fingerprint.device_name} ({fingerprint.device_kind})",
    }
    for key in ("keras", "os", "cpu", "cores", "intra_op_threads", "inter_op_threads", "driver", "cuda"):
        if key == "cuda" and fingerprint.device_kind != "GPU":
            continue
        if known.get(key) not in (None, ""):
            facts[key] = str(known[key])
    for key in ("intra_op_threads", "inter_op_threads"):
        if facts.get(key) == "0":
            facts[key] = "0 (as many as cores)"
    if warm_up := measured.of(WarmUp):
        facts["warm_up_steps"] = str(len(warm_up))
    if fingerprint.gpu_unseen:
        blind = FRAMEWORKS[fingerprint.backend]
        facts["warning"] = f"this machine has a GPU ({', '.join(fingerprint.gpus_present)}) that {blind} did not see: measured on the CPU"
    facts.update(_remarks(measured))
    return {key: value for key, value in facts.items() if value}


def provenance_of_profiles(profiles: Sequence[StepsOfProfile], runs: int, variables: str, command: str) -> dict[str, str]:
    """What a reader needs to find the profiles again, and to repeat the fit.

    Parameters
    ----------
    profiles
        At least one.
    runs
        How many of them show the same batch size.
    variables
        Where the model's variables were read.
    command
        The command line, or "" from Python.
    """
    marks = dict.fromkeys(seen.marks.name for seen in profiles)
    facts = {
        **made(command),
        "runs": str(runs),
        "profiled": " ".join(filter(None, (seen.started for seen in profiles))),
        "profiles": " ".join(str(seen.profile.path) for seen in profiles),
        "profiles_sha256": " ".join(seen.profile.sha256 for seen in profiles),
        "steps": f"{sum(len(seen.steps) for seen in profiles)}, marked by {', '.join(marks)!r}",
        "device": profiles[0].device_name,
        "variables": variables,
    }
    return {key: value for key, value in facts.items() if value}


def made(command: str) -> dict[str, str]:
    """When and by what something was fitted: the beginning of every provenance."""
    try:
        version = metadata.version("paceline")
    except metadata.PackageNotFoundError:
        version = "not installed"
    return {"date": datetime.now().astimezone().isoformat(timespec="seconds"), "paceline": version, "command": command}


def _remarks(measured: Measurements) -> dict[str, str]:
    remarks: dict[str, str] = {}
    ready = measured.of(Ready)
    if ready and not any(record.observed for record in ready):
        why = "come out of a compiled step at once" if measured.fingerprint.backend == "jax" else "computed outside tf.function"
        remarks["gradients"] = f"{why}, where their order cannot be seen: each counts as ready at the end of the backward pass"
    for note in measured.of(Note):
        extra = note.model_extra or {}
        if extra.get("optimizer"):
            remarks["optimizer"] = str(extra["optimizer"])
        if extra.get("instrumented_without_xla"):
            remarks["split"] = "the steps split into forward, backward and apply ran without XLA; the step times are with it"
        remarks |= {key: str(extra[key]) for key in ("split", "lacking", "remark") if extra.get(key)}
    if not measured.complete:
        remarks["incomplete"] = "the probe did not come to its end; fitted to what it had measured"
    if measured.truncated:
        remarks["truncated"] = "the last line of the measurements was cut off and left out"
    return remarks
