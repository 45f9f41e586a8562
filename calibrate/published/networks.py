"""What the published tables trained: the sizes of gradients, and when each is ready."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from simulator.errors import ScenarioError
from simulator.loading import read_toml
from simulator.spec import Spec

__all__ = ["Network", "Tensor", "fused", "held_by", "load_networks", "variables"]


class Tensor(NamedTuple):
    """One gradient: its elements, and the share of the backward pass after which it is ready."""

    elements: float
    ready: float


class Network(Spec):
    """An architecture: its tensors listed, or equal layers and an input embedding whose gradient comes last."""

    id: str
    parameters: float | None = Field(default=None, gt=0)
    layers: int = Field(default=1, ge=1)
    input_parameters: float = Field(default=0.0, ge=0)
    tensors: bool = Field(default=False, description="listed in tensors.csv")
    source: str


def load_networks(home: Path) -> dict[str, tuple[Tensor, ...]]:
    """Gradients of every network in the order in which the backward pass makes them.

    Parameters
    ----------
    home
        The folder with ``networks.toml`` and ``tensors.csv``.

    Raises
    ------
    ScenarioError
        A network has neither tensors nor a number of parameters.
    """
    return {network.id: _tensors(network, home) for network in (Network.model_validate(each) for each in _entries(home))}


def _entries(home: Path) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = read_toml(home / "networks.toml").get("network", [])
    return entries


def _tensors(network: Network, home: Path) -> tuple[Tensor, ...]:
    if network.tensors:
        return _listed(home)[network.id]
    if network.parameters is None:
        raise ScenarioError(f"{home / 'networks.toml'}: {network.id}: give parameters, or list its tensors and set tensors = true")
    each = (network.parameters - network.input_parameters) / network.layers
    layers = [Tensor(each, number / network.layers) for number in range(1, network.layers + 1)]
    return (*layers, Tensor(network.input_parameters, 1.0)) if network.input_parameters else tuple(layers)


@lru_cache(maxsize=4)
def _listed(home: Path) -> dict[str, tuple[Tensor, ...]]:
    """Tensors of ``tensors.csv``, which lists them in the order of the forward pass with the share of it before each.

    The backward pass goes through the layers the other way round, so the gradient of a
    tensor is ready when all but what lies before its layer is done.
    """
    found: dict[str, list[Tensor]] = {}
    with open(home / "tensors.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["network"], []).append(Tensor(float(row["elements"]), 1.0 - float(row["forward_share_before"])))
    return {name: tuple(reversed(tensors)) for name, tensors in found.items()}


def fused(tensors: Sequence[Tensor], pieces: int) -> list[Tensor]:
    """At most so many tensors: neighbours put together, each ready with the last of its parts."""
    total = sum(tensor.elements for tensor in tensors)
    done: list[Tensor] = []
    elements = passed = 0.0
    for tensor in tensors:
        elements += tensor.elements
        passed += tensor.elements
        if passed >= total * (len(done) + 1) / pieces * (1 - 1e-12):
            done.append(Tensor(elements, tensor.ready))
            elements = 0.0
    return done


def held_by(tensors: Sequence[Tensor], servers: int, pieces: int) -> list[list[Tensor]]:
    """What each server holds, put together into equally many pieces, at most so many.

    Tensors go to servers in turn, in the order in which the model creates them, as
    ``replica_device_setter`` does it.
    """
    created = list(reversed(tensors))
    held = [list(reversed(created[server::servers])) for server in range(servers)]
    count = min([pieces, *(len(part) for part in held)])
    parts = [fused(part, count) for part in held]
    fewest = min(len(part) for part in parts)
    return [fused(part, fewest) for part in parts]


def variables(parts: Sequence[Sequence[Tensor]], bytes_per_element: float) -> list[dict[str, Any]]:
    """Variables of a workload as its file has them; part ``k`` of several is placed on server ``k`` by a placement in turn.

    Parameters
    ----------
    parts
        Tensors of each server, as many of each, in the order in which they become ready.
    bytes_per_element
        4 of float32, 2 of float16.
    """
    servers = len(parts)
    found = [
        (tensor.ready, place, {"name": f"{server}.{place}", "size_bytes": max(tensor.elements * bytes_per_element, 1.0),
                               "creation_index": (len(part) - 1 - place) * servers + server, "ready": min(max(tensor.ready, 0.0), 1.0)})
        for server, part in enumerate(parts)
        for place, tensor in enumerate(part)
    ]  # fmt: skip
    found.sort(key=lambda item: (item[0], item[1]))
    return [variable for _, _, variable in found]
