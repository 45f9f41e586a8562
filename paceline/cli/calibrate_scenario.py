"""``paceline calibrate --from-tf-config``: TensorFlow's description of a cluster in, a scenario out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from paceline.cli.calibrating import numbers_of
from paceline.cli.terminal import note
from simulator.errors import InputError
from simulator.files import check_writable, write_whole

if TYPE_CHECKING:
    from calibrate.tf_config import TfCluster

__all__ = ["Planned", "batch_of", "needs", "planned", "write_scenario"]


@dataclass(frozen=True)
class Planned:
    """A scenario that can be written as soon as its workload is there.

    Attributes
    ----------
    tasks
        The cluster as TensorFlow is told of it.
    path
        Where the scenario goes.
    cluster
        Hardware and links: a name of the catalogue, or a file.
    devices_per_worker
        Devices that each worker drives.
    """

    tasks: TfCluster
    path: Path
    cluster: str
    devices_per_worker: int


def needs(option: str, given: Any, others: Mapping[str, Any]) -> None:
    """Raise InputError if one of the others is given without the option that it belongs to."""
    stray = next((name for name, value in others.items() if value is not None), None)
    if stray is not None and given in (None, []):
        raise InputError(f"{stray}: goes with {option}; add that, or leave {stray} out")


def planned(config: str, path: Path, cluster: str | None, devices_per_worker: int | None) -> Planned:
    """Read a TF_CONFIG, and make sure that a scenario can be written, before anything is measured.

    Raises
    ------
    InputError
        The TF_CONFIG cannot be used, or the file exists or cannot be written.
    """
    from calibrate.tf_config import read_tf_config

    if path.exists() or path.is_symlink():
        raise InputError(f"--out {str(path)!r}: exists, and a scenario is not overwritten; choose another name")
    return Planned(
        read_tf_config(config), check_writable(path), cluster or "ethernet-25g", 1 if devices_per_worker is None else devices_per_worker
    )


def batch_of(text: str | None) -> int:
    """The batch size of a scenario whose workload is fitted already."""
    if text is None:
        raise InputError("--batch is missing: a TF_CONFIG does not tell how many samples a replica takes a step; give such as --batch 32")
    sizes = numbers_of(text, "--batch")
    if len(sizes) != 1:
        raise InputError(f"--batch {text}: a scenario has one batch size; give one, such as --batch {sizes[-1]}")
    return sizes[0]


def write_scenario(plan: Planned, workload: str, batch: int, as_json: bool) -> None:
    """Write a scenario, if it is valid, and say what it has.

    Raises
    ------
    InputError
        It breaks a rule, or names a workload or cluster that there is not.
    """
    from calibrate.tf_config import scenario_of, scenario_text

    text = scenario_text(plan.tasks, workload, batch, plan.cluster, plan.devices_per_worker)
    scenario = scenario_of(text, str(plan.path), plan.path.parent)
    write_whole(plan.path, text)
    told = {"replicas": scenario.replicas, "servers": scenario.servers, "nodes": scenario.nodes_needed, "batch_per_replica": batch}
    if as_json:
        typer.echo(json.dumps({"file": str(plan.path), "strategy": scenario.strategy.kind, **told}, indent=2))
    note(
        f"wrote {plan.path}: {scenario.strategy.kind}, {scenario.replicas} replicas, {scenario.servers} servers, batch {batch}; "
        f"next: paceline simulate {plan.path}"
    )
