"""Where a workload fitted to profiles comes from, and what they could not tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata

from calibrate.xplane.phases import StepsOfProfile
from simulator.text import format_seconds

__all__ = ["batch_seen", "device_name", "facts_of", "flags_of"]


def _version() -> str:
    try:
        return metadata.version("paceline")
    except metadata.PackageNotFoundError:
        return "not installed"


def facts_of(profiles: Sequence[StepsOfProfile], runs: int, variables: str, command: str) -> dict[str, str]:
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
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "paceline": _version(),
        "command": command,
        "runs": str(runs),
        "profiled": " ".join(filter(None, (_started(one) for one in profiles))),
        "profiles": " ".join(str(one.profile.path) for one in profiles),
        "profiles_sha256": " ".join(one.profile.sha256 for one in profiles),
        "steps": f"{sum(len(one.steps) for one in profiles)}, marked by {', '.join(dict.fromkeys(one.marks.name for one in profiles))!r}",
        "device": device_name(profiles[0]),
        "variables": variables,
    }
    return {key: value for key, value in facts.items() if value}


def _started(one: StepsOfProfile) -> str:
    given = one.profile.planes.get("Task Environment", {}).get("profile_start_time")
    return datetime.fromtimestamp(int(given) * 1e-9).astimezone().isoformat(timespec="seconds") if given else ""


def device_name(one: StepsOfProfile) -> str:
    """The device that a profile's times are those of, for people."""
    if one.device.startswith("/device:"):
        kind = one.profile.planes.get(one.device, {}).get("device_type_string", "")
        return f"{kind or one.device.removeprefix('/device:')} of {one.profile.host}"
    return f"CPU of {one.profile.host}"


def batch_seen(profiles: Sequence[StepsOfProfile]) -> int | None:
    """The first dimension that all tensors of a batch have in common, as ``tf.data`` recorded their shapes; None where not."""
    found = {int(size) for one in profiles for size in re.findall(r"\[(\d+)", one.input.shapes)}
    return found.pop() if len(found) == 1 else None


def flags_of(by_batch: Mapping[int, Sequence[StepsOfProfile]]) -> dict[str, str]:
    """Remarks by subject, for the provenance of a workload."""
    profiles = [one for ones in by_batch.values() for one in ones]
    steps = [step for one in profiles for step in one.steps]
    flags = {"overhead": "a profiler was running, which slows steps, most of all those of many small operations"}
    if len(by_batch) == 1:
        (batch,) = by_batch
        flags["undetermined"] = (
            f"one batch size ({batch}) does not tell a step's fixed cost from a sample's: all of forward and backward is counted "
            "as the samples'; profile a second batch size to go beyond it"
        )
    for batch, ones in by_batch.items():
        seen = batch_seen(ones)
        if seen is not None and seen != batch:
            flags["batch"] = f"the input's tensors have {seen} rows in the profile for which batch {batch} was given"
    unsplit = sum(step.backward_s is None for step in steps)
    if unsplit:
        which = "no step names" if unsplit == len(steps) else f"{unsplit} of {len(steps)} steps name none of"
        flags["split"] = (
            f"{which} the gradients' operations (compiled by XLA?): a third of their time is counted as forward, two thirds as backward"
            if unsplit == len(steps)
            else f"{which} the gradients' operations; they are split as the others"
        )
    if all(one.input.prefetched for one in profiles):
        flags["input"] = "prepared beside the computation; the wait for it is no part of forward"
    elif any(step.input_s > 0 for step in steps):
        flags["input"] = "nothing is prefetched: the wait for input is counted as forward"
    several = max(one.input.batches_a_step for one in profiles)
    if several > 1:
        flags["steps_per_execution"] = f"a marked step fetches {several} batches: it may be {several} steps of the model"
    collectives = sorted({op.kind for step in steps for op in step.ops if op.role == "communication"})
    if collectives:
        exposed = sum(step.collective_s for step in steps) / len(steps)
        taken = f"; {format_seconds(exposed)} a step, while the device computed nothing, are taken out" if exposed else ""
        flags["communication"] = (
            f"the profiled run communicated ({', '.join(collectives[:3])}){taken}: waiting for other replicas may be left in the step; "
            "a profile of one replica is better"
        )
    devices = max(len(one.profile.devices) for one in profiles)
    if devices > 1:
        flags["devices"] = f"times are those of {profiles[0].device}, one of {devices} devices in the profile"
    traced, pauses = sum(one.marks.traced for one in profiles), sum(one.marks.pauses for one in profiles)
    if traced:
        flags["traced"] = f"{traced} steps that traced a graph are left out"
    if pauses:
        flags["pauses"] = f"{pauses} pauses behind steps, ten times the median step or longer, are left out"
    return flags
