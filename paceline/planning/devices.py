"""What a workload that names no device means for a choice between devices."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.accelerator import accelerator_named
from simulator.errors import InputError
from simulator.scenario import Scenario

__all__ = ["check_devices"]


def check_devices(scenarios: Iterable[Scenario], source: str) -> list[str]:
    """Refuse to compare devices by a workload that does not say on which it was measured.

    Returns
    -------
    list of str
        A note for each cluster whose device the times of such a workload are taken to hold for.

    Raises
    ------
    InputError
        A workload names no device, and its clusters have several, on which it cannot be equally fast.
    """
    devices: dict[str, dict[str, str]] = {}
    for scenario in scenarios:
        load, name = scenario.workload, scenario.cluster.device
        nameless = load.moved is None and (load.calibrated is None or not load.calibrated.device)
        if nameless and name:
            device = accelerator_named(name)
            devices.setdefault(load.name, {}).setdefault(device.name if device is not None else name, name)
    notes = []
    for workload, its in devices.items():
        names = list(its.values())
        if len(names) > 1:
            shown = ", ".join(map(repr, names[:4]))
            setting = f"--set 'workload.calibrated={{batch=[1,64],device=\"{names[0][:60]}\"}}'"
            raise InputError(
                f"{source}: the workload {workload!r} names no device, but the clusters have several ({shown}), on which it cannot be "
                f"equally fast: say on which it was measured, such as {setting}, or plan for one of them at a time"
            )
        notes.append(f"the workload {workload!r} names no device; its times are taken to be those on {names[0]!r}")
    return notes
