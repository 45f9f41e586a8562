"""Where a fitted file comes from: date, version, command, measurements, machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib import metadata

from calibrate.measurements import Measurements
from calibrate.records import Note, Ready, WarmUp
from calibrate.xplane.steps import StepsOfProfile

__all__ = ["provenance", "provenance_of_profiles"]


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
        **_made(command),
        "measured": measured.header.started,
        "runs": str(len(runs)),
        "measurements": " ".join(run.path.name for run in runs),
        "measurements_sha256": " ".join(run.sha256 for run in runs),
        "tensorflow": fingerprint.tensorflow,
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
        facts["warning"] = (
            f"this machine has a GPU ({', '.join(fingerprint.gpus_present)}) that TensorFlow did not see: measured on the CPU"
        )
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
        **_made(command),
        "runs": str(runs),
        "profiled": " ".join(filter(None, (one.started for one in profiles))),
        "profiles": " ".join(str(one.profile.path) for one in profiles),
        "profiles_sha256": " ".join(one.profile.sha256 for one in profiles),
        "steps": f"{sum(len(one.steps) for one in profiles)}, marked by {', '.join(dict.fromkeys(one.marks.name for one in profiles))!r}",
        "device": profiles[0].device_name,
        "variables": variables,
    }
    return {key: value for key, value in facts.items() if value}


def _made(command: str) -> dict[str, str]:
    try:
        version = metadata.version("paceline")
    except metadata.PackageNotFoundError:
        version = "not installed"
    return {"date": datetime.now().astimezone().isoformat(timespec="seconds"), "paceline": version, "command": command}


def _remarks(measured: Measurements) -> dict[str, str]:
    remarks: dict[str, str] = {}
    ready = measured.of(Ready)
    if ready and not any(record.observed for record in ready):
        remarks["gradients"] = (
            "computed outside tf.function, where their order cannot be seen: each counts as ready at the end of the backward pass"
        )
    for note in measured.of(Note):
        extra = note.model_extra or {}
        if extra.get("optimizer"):
            remarks["optimizer"] = str(extra["optimizer"])
        if extra.get("instrumented_without_xla"):
            remarks["split"] = "the steps split into forward, backward and apply ran without XLA; the step times are with it"
        if extra.get("remark"):
            remarks["remark"] = str(extra["remark"])
    if not measured.complete:
        remarks["incomplete"] = "the probe did not come to its end; fitted to what it had measured"
    if measured.truncated:
        remarks["truncated"] = "the last line of the measurements was cut off and left out"
    return remarks
