"""Which devices a plan compares, and where the workload's times are taken to hold for one that nobody named."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.errors import InputError
from simulator.published_throughputs import kind_of
from simulator.resolve import resolve
from simulator.scenario import Scenario
from simulator.workload import Workload

__all__ = ["check_devices"]


def check_devices(scenarios: Iterable[Scenario], source: str) -> list[str]:
    """Refuse to compare devices by a workload that does not say on which it was measured.

    Returns
    -------
    list of str
        A note for each device that was taken for granted: that of the cluster where the
        workload names none, that of the workload where the cluster names none and others
        do, or the workload was moved already.

    Raises
    ------
    InputError
        A workload names no device, and its clusters have several, on which it cannot be equally
        fast; or one factor, given by hand, would move it to several devices alike.
    """
    scenarios = [resolve(scenario).scenario for scenario in scenarios]
    _check_given(scenarios, source)
    unsaid: dict[str, dict[object, str]] = {}
    for scenario in scenarios:
        load, name = scenario.workload, scenario.cluster.device
        if load.moved is None and not _device_of(load) and name:
            unsaid.setdefault(load.name, {}).setdefault(kind_of(name), name)
    for workload, its in unsaid.items():
        if len(its) > 1:
            names = list(its.values())
            shown = ", ".join(map(repr, names[:4]))
            setting = f"--set 'workload.calibrated={{batch=[1,64],device=\"{names[0][:60]}\"}}'"
            raise InputError(
                f"{source}: the workload {workload!r} names no device, but the clusters have several ({shown}), on which it cannot be "
                f"equally fast: say on which it was measured, such as {setting}, or plan for one of them at a time"
            )
    notes = [
        f"the workload {workload!r} names no device; its times are taken to be those on {name!r}"
        for workload, its in unsaid.items()
        for name in its.values()
    ]
    some_name_one = any(scenario.cluster.device for scenario in scenarios)
    for scenario in scenarios:
        load, cluster = scenario.workload, scenario.cluster
        device, moved = _device_of(load), load.moved is not None and load.moved.applied
        if device and not cluster.device and (moved or some_name_one):
            notes.append(f"the cluster {cluster.name!r} names no device; it is taken to have that of the workload's times, {device!r}")
    return list(dict.fromkeys(notes))


def _check_given(scenarios: Iterable[Scenario], source: str) -> None:
    """Refuse a factor that was given by hand, which holds for one device, where the clusters have more."""
    moved: dict[tuple[str, tuple[float, ...]], dict[object, str]] = {}
    for load in (scenario.workload for scenario in scenarios):
        if load.moved is not None and load.moved.applied and load.moved.rule == "given":
            to = load.moved.to_device
            moved.setdefault((load.name, load.moved.factor), {}).setdefault(kind_of(to), to)
    for (name, factor), its in moved.items():
        if len(its) > 1:
            ends = " to ".join(f"{end:g}" for end in (factor[0], factor[-1]))
            raise InputError(
                f"{source}: workload.moved gives the workload {name!r} one factor ({ends}), but the clusters have several devices "
                f"({', '.join(map(repr, list(its.values())[:4]))}), to which it cannot be the same: plan for each cluster by itself, "
                "with --clusters and its own factor, or leave workload.moved out where a published rule leads there"
            )


def _device_of(load: Workload) -> str:
    """The device that a workload's times are of; empty where it does not say."""
    if load.moved is not None and load.moved.applied:
        return load.moved.to_device
    return load.calibrated.device if load.calibrated is not None else ""
