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
from tomlkit.items import Array, Table

from calibrate.measurements import FRAMEWORKS, Measurements, Note, Ready, WarmUp
from calibrate.xplane.steps import StepsOfProfile
from simulator.base.files import Output, fitted_kind
from simulator.base.text import format_bytes, format_rate, format_seconds
from simulator.spec.cluster import Cluster
from simulator.spec.input_pipeline import InputPipeline
from simulator.spec.workload import Workload

WORKLOAD, CLUSTER, INPUT = fitted_kind("workload", "forward"), fitted_kind("cluster", "inter_node"), fitted_kind("input", "work")
"""Files that a new calibration may replace."""

_WORKLOAD_HEAD = (
    "Fitted by `paceline calibrate`. Seconds and bytes; base_s + per_sample_s * batch.",
    'Use it in a scenario: [workload] use = "{name}"',
)
_CLUSTER_HEAD = ("Fitted by `paceline calibrate-link`. Seconds, bytes, bytes per second.", 'Use it in a scenario: [cluster] use = "{name}"')
_SERVER_HEAD = (
    "Fitted by `paceline calibrate-server`: what gRPC costs hosts (transport), beside a link. Seconds, bytes, bytes per second.",
    'Use it in a scenario: [cluster] use = "{name}"',
)
_INPUT_HEAD = (
    "Fitted by `paceline calibrate-input`. Seconds and bytes; a batch takes max(serial, parallel / parallel_calls).",
    'Use it in a scenario: [input] use = "{name}"',
)
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
    return tomlkit.dumps(_document(workload.model_dump(mode="json", exclude_none=True), _WORKLOAD_HEAD, workload.name))


def cluster_text(cluster: Cluster) -> str:
    """What a cluster file holds."""
    data = cluster.model_dump(mode="json", exclude_none=True)
    # left out: what was not measured keeps its default, and a reader is not misled
    for key in ("intra_node", "devices_per_node", "replicas_per_device", "node_speed", "device"):
        if key not in cluster.model_fields_set or not data.get(key):
            data.pop(key, None)
    return tomlkit.dumps(_document(data, _SERVER_HEAD if cluster.fit_hosts is not None else _CLUSTER_HEAD, cluster.name))


def input_text(pipeline: InputPipeline) -> str:
    """What the file of an input pipeline holds."""
    data = pipeline.model_dump(mode="json", exclude_none=True)
    shown: dict[str, Any] = {key: data.pop(key) for key in ("name", "description") if key in data}
    settings = {key: getattr(pipeline, key) for key in ("parallel_calls", "prefetch", "shuffle_buffer")}
    return tomlkit.dumps(_document({**shown, **settings, **data}, _INPUT_HEAD, pipeline.name))


def _document(data: dict[str, Any], head: tuple[str, ...], name: str) -> tomlkit.TOMLDocument:
    document = tomlkit.document()
    for line in head:
        document.add(tomlkit.comment(line.format(name=name)))
    document.add(tomlkit.nl())
    plain = {key: value for key, value in data.items() if key in _INLINE or not _is_table(value)}
    for key, value in plain.items():
        if value in ({}, []):
            continue
        if key in _INLINE:
            document.add(tomlkit.comment(_INLINE[key]))
        _add(document, key, value)
    for key, value in data.items():
        if key in plain or value in ({}, []):
            continue
        table = _table(value) if isinstance(value, dict) else _tables(value)
        if key in _COMMENTS and isinstance(table, Table):
            table.comment(_COMMENTS[key])
        elif key in _COMMENTS:
            document.add(tomlkit.comment(_COMMENTS[key]))
        document.add(key, table)
    return document


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


def _tables(rows: list[dict[str, Any]]) -> Any:
    tables = tomlkit.aot()
    for row in rows:
        tables.append(_table(row))
    return tables


def _add(table: Any, key: str, value: Any) -> None:
    """One key; long arrays with one item per line, quantities with a comment in the unit that one reads."""
    if isinstance(value, list):
        table.add(key, _array(value))
        return
    table.add(key, value)
    shown = _shown(key, value)
    if shown:
        table[key].comment(shown)


def _array(values: list[Any]) -> Array:
    array = tomlkit.array()
    for value in values:
        if isinstance(value, dict):
            row = tomlkit.inline_table()
            row.update(value)
            array.append(row)
        else:
            array.append(value)
    array.multiline(bool(values) and isinstance(values[0], (list, dict)))
    return array


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
    if facts.get("intra_op_threads") == "0":
        facts["intra_op_threads"] = "0 (as many as cores)"
    if facts.get("inter_op_threads") == "0":
        facts["inter_op_threads"] = "0 (as many as cores)"
    warm_up = measured.of(WarmUp)
    if warm_up:
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
    facts = {
        **made(command),
        "runs": str(runs),
        "profiled": " ".join(filter(None, (one.started for one in profiles))),
        "profiles": " ".join(str(one.profile.path) for one in profiles),
        "profiles_sha256": " ".join(one.profile.sha256 for one in profiles),
        "steps": f"{sum(len(one.steps) for one in profiles)}, marked by {', '.join(dict.fromkeys(one.marks.name for one in profiles))!r}",
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
        for key in ("split", "lacking"):
            if extra.get(key):
                remarks[key] = str(extra[key])
        if extra.get("remark"):
            remarks["remark"] = str(extra["remark"])
    if not measured.complete:
        remarks["incomplete"] = "the probe did not come to its end; fitted to what it had measured"
    if measured.truncated:
        remarks["truncated"] = "the last line of the measurements was cut off and left out"
    return remarks
