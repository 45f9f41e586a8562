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
from typing import Any, TypeAlias

import tomlkit
from tomlkit.items import Table

from calibrate.measurements import FRAMEWORKS, Measurements, Note, Ready, WarmUp
from simulator.base.files import Output, fitted_kind
from simulator.base.text import format_bytes, format_rate, format_seconds
from simulator.spec.cluster import Cluster
from simulator.spec.input_pipeline import InputPipeline
from simulator.spec.workload import Workload

Fitted: TypeAlias = Workload | Cluster | InputPipeline

REPLACEABLE = {kind: fitted_kind(kind, key) for kind, key in (("workload", "forward"), ("cluster", "inter_node"), ("input", "work"))}
"""Files that a new calibration may replace."""

_HEADS = {
    "workload": "Fitted by `paceline calibrate`. Seconds and bytes; base_s + per_sample_s * batch.",
    "cluster": "Fitted by `paceline calibrate-link`. Seconds, bytes, bytes per second.",
    "traced": "Fitted by `paceline calibrate --from-profile`: what links achieved under load. Seconds, bytes, bytes per second.",
    "server": "Fitted by `paceline calibrate-server`: host costs of gRPC (transport) and a link. Seconds, bytes, bytes per second.",
    "input": "Fitted by `paceline calibrate-input`. Seconds and bytes; a batch takes max(serial, parallel / parallel_calls).",
}
_COMMENTS = {
    "forward": "forward pass",
    "backward": "backward pass",
    "jitter_draws": "distributions of jitter fitted to bootstrap samples of the rounds; each run takes one",
    "jitter": "distribution of a step's time around its mean, chosen by an information criterion",
    "server": "time of a parameter server to apply one gradient tensor",
    "variables": "in the order in which their gradients become ready; ready is a share of the backward pass",
    "counted": "operations and bytes of a step on any device, counted from its graph; bytes without any fusion of operations",
    "overheads": "time of a job outside steps: value, and 90% interval over runs",
    "noise_scale": "samples of the batch whose gradient has as much noise as signal, over a whole training (provenance.noise_scale)",
    "layers": "in the order of the forward pass; forward and backward in seconds at one batch size (provenance.layers), used as shares",
    "calibrated": "measured range; results warn outside it",
    "uncertainty": "joint bootstrap draws of the fitted parameters",
    "fit": "how well the curves describe the measurements",
    "transport": "host costs of messages between nodes",
    "fit_hosts": "how well host times per tensor and byte describe pulls and pushes",
    "inter_node": "between nodes",
    "work": "of a batch: in every epoch or, if the pipeline caches, in the first",
    "cached": "of a batch in epochs after the first",
}


def write_fitted(fitted: Fitted, path: Path, *, force: bool = False) -> Path:
    """Write the file of a fit, whole or not at all; returns the path.

    Raises
    ------
    InputError
        It cannot be written, or without ``force``, something else is there than such a file that was fitted.
    """
    return Output(path, REPLACEABLE[_kind_of(fitted)], force=force).write(fitted_text(fitted))


def fitted_text(fitted: Fitted) -> str:
    """Return what the file of a fit holds."""
    data, head = fitted.model_dump(mode="json", exclude_none=True), _kind_of(fitted)
    if isinstance(fitted, Cluster):
        head = "server" if fitted.fit_hosts is not None else "traced" if "collectives" in fitted.provenance else head
        # left out: what was not measured keeps its default, and a reader is not misled
        for key in ("intra_node", "devices_per_node", "replicas_per_device", "node_speed", "device"):
            if key not in fitted.model_fields_set or not data.get(key):
                data.pop(key, None)
    elif isinstance(fitted, InputPipeline):
        # first, and also where they are the defaults
        settings = {key: getattr(fitted, key) for key in ("parallel_calls", "prefetch", "shuffle_buffer")}
        data = {key: data[key] for key in ("name", "description") if key in data} | settings | data
    return _text(data, head, _kind_of(fitted))


def _kind_of(fitted: Fitted) -> str:
    return "workload" if isinstance(fitted, Workload) else "cluster" if isinstance(fitted, Cluster) else "input"


def _text(data: dict[str, Any], head: str, kind: str) -> str:
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEADS[head]))
    document.add(tomlkit.comment(f'Use it in a scenario: [{kind}] use = "{data["name"]}"'))
    document.add(tomlkit.nl())
    data = {key: value for key, value in data.items() if value not in ({}, [])}
    tables = {key: value for key, value in data.items() if key != "jitter_draws" and _is_table(value)}
    for key, value in data.items():
        if key not in tables:
            if key in _COMMENTS:
                document.add(tomlkit.comment(_COMMENTS[key]))
            _add(document, key, value)
    for key, value in tables.items():
        if isinstance(value, dict):
            table = _table(value)
            if key in _COMMENTS:
                table.comment(_COMMENTS[key])
            document.add(key, table)
        else:
            document.add(tomlkit.comment(_COMMENTS[key]))
            rows = tomlkit.aot()
            rows.extend(map(_table, value))
            document.add(key, rows)
    return tomlkit.dumps(document)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict))


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
    """Return what a reader needs to judge, and to repeat, the measurement.

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
    of_gpu = ("cuda",) if fingerprint.device_kind == "GPU" else ()
    for key in ("keras", "os", "cpu", "cores", "intra_op_threads", "inter_op_threads", "driver", *of_gpu):
        if known.get(key) not in (None, ""):
            facts[key] = "0 (as many as cores)" if str(known[key]) == "0" else str(known[key])
    if warm_up := measured.of(WarmUp):
        facts["warm_up_steps"] = str(len(warm_up))
    if fingerprint.gpu_unseen:
        blind = FRAMEWORKS[fingerprint.backend]
        facts["warning"] = f"this machine has a GPU ({', '.join(fingerprint.gpus_present)}) that {blind} did not see: measured on the CPU"
    facts.update(_remarks(measured))
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
        why = "leave a compiled step at once" if measured.fingerprint.backend == "jax" else "computed outside tf.function"
        remarks["gradients"] = f"{why}, so their order is unknown: each counts as ready at the end of the backward pass"
    for note in measured.of(Note):
        extra = note.model_extra or {}
        if extra.get("optimizer"):
            remarks["optimizer"] = str(extra["optimizer"])
        if extra.get("instrumented_without_xla"):
            remarks["split"] = "steps split into forward, backward and apply ran without XLA; step times are with XLA"
        remarks |= {key: str(extra[key]) for key in ("split", "lacking", "remark") if extra.get(key)}
    if not measured.complete:
        remarks["incomplete"] = "the probe did not finish; fitted to its measurements so far"
    if measured.truncated:
        remarks["truncated"] = "the last line of the measurements was cut off and left out"
    return remarks
