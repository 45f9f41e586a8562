"""Published tables as they were carried into the project: rows, facts of each series, networks that were trained, what was left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from evidence.rows import rows_in
from simulator.base import catalog
from simulator.base.errors import CalibrationError, ScenarioError
from simulator.base.files import read_toml
from simulator.base.spec import Bytes, Seconds, Spec
from simulator.base.validation_errors import validated
from simulator.catalogue.loading import load_cluster
from simulator.spec.cluster import Cluster


def data_file(name: str) -> Path:
    """A file of ``models/published``.

    Raises
    ------
    CalibrationError
        There is none of this name.
    """
    try:
        return catalog.own_file(f"published/{name}")
    except StopIteration:
        raise CalibrationError(f"models/published: there is no file {name!r}; install Paceline again") from None


_EXCLUSIONS = ("excluded.toml", "excluded_nccl_staleness.toml")
_ACCOUNTINGS = ("accounting.csv", "nccl_staleness_accounting.csv")

Regime = Literal["sync PS", "async PS", "all-reduce"]
Inside = Literal["nvlink", "pcie", "host-memory"]

SpecT = TypeVar("SpecT", bound=BaseModel)


class Row(Spec):
    """One setting of a series, with the throughput of each repeat that was published."""

    series: str
    replicas: int = Field(ge=1)
    nodes: int = Field(ge=1)
    servers: int | None = Field(default=None, ge=1)
    batch_per_replica: int = Field(ge=1)
    throughput: tuple[float, ...] = Field(min_length=1, description="of all replicas together")
    unit: str
    std: float | None = Field(default=None, description="standard deviation of repeats, where only that was published")
    level: str = Field(description="T text table, D derived, L labels of a figure, E excerpt")
    source: str

    @property
    def replicas_per_node(self) -> int:
        """Devices in use on each node."""
        return -(-self.replicas // self.nodes)

    @property
    def mean(self) -> float:
        """Mean throughput of the repeats."""
        return math.fsum(self.throughput) / len(self.throughput)

    @property
    def step_s(self) -> float:
        """Seconds of a step of every replica."""
        return self.replicas * self.batch_per_replica / self.mean


class Series(Spec):
    """Rows that differ only in size, and the facts for their scenario."""

    id: str
    table: str = Field(description="the source; its rows are predicted with constants fitted without it")
    regime: Regime
    network: str
    cluster: str
    stack: str
    inside: Inside = Field(description="what joins the devices of a node, where its links are nominal")
    mixed: bool = Field(default=False, description="mixed precision")
    tokens: bool = Field(default=False, description="throughput counts tokens, and the batch is one of tokens")
    note: str = ""


class Stack(Spec):
    """How a software moves gradients; facts about it, none of them fitted."""

    id: str
    kind: Literal["all-reduce", "parameter-server", "asynchronous"]
    between: Literal["none", "rdma", "tcp", "grpc", "paddle-rpc", "ps-lite"]
    overlap: bool
    bucket_bytes: Bytes | None = None
    cycle_s: Seconds | None = None
    one_process: bool = False
    per_key: bool = False
    worker: Literal["device", "node"] = "device"
    even: bool = False
    placement: Literal["colocated", "dedicated"] = "colocated"
    halves: bool = False
    alone_with_servers: bool = Field(default=False, description="a row of one worker that names servers was measured with them")
    every: int = Field(default=1, ge=1, description="steps between exchanges")
    strategy: str = Field(default="", description="kind of strategy of a scenario whose own software this is; left out: none")
    source: str


class Excluded(Spec):
    """A series, or rows of one, that are not predicted."""

    table: str
    series: str
    rows: int = Field(ge=1)
    reason: str = Field(min_length=10)


class Accounted(Spec):
    """A series of the tables that were collected, whether it enters or not."""

    table: str
    series: str
    rows: int = Field(ge=1)
    role: Literal["predicted", "base", "excluded"] = Field(
        default="predicted", description="base: a row of one device that other series begin with"
    )
    shared: int = Field(default=0, ge=0, description="values among its rows that are counted with a base")


class Tables:
    """All of ``models/published``.

    Parameters
    ----------
    home
        The folder.

    Attributes
    ----------
    series
        Those that are predicted, in the order of the file.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.series = several(home / "series.toml", "series", Series)
        self._rows: dict[str, list[Row]] = {series.id: [] for series in self.series}
        for table in dict.fromkeys(series.table for series in self.series):
            for row in _rows(home / f"{table}.csv"):
                if row.series not in self._rows:
                    raise ScenarioError(f"{home / table}.csv: series {row.series!r} is not in series.toml; add it there")
                self._rows[row.series].append(row)

    def rows(self, series: Series) -> list[Row]:
        """The rows of a series, the smallest first."""
        return sorted(self._rows[series.id], key=lambda row: (row.replicas, row.nodes))

    @cached_property
    def stacks(self) -> dict[str, Stack]:
        """Software by its id."""
        return {stack.id: stack for stack in several(self.home / "stacks.toml", "stack", Stack)}

    @cached_property
    def excluded(self) -> list[Excluded]:
        """Excluded rows, with reasons."""
        return [each for name in _EXCLUSIONS for each in several(self.home / name, "excluded", Excluded)]

    @cached_property
    def accounted(self) -> list[Accounted]:
        """Every series of the tables that were collected."""
        return [each for name in _ACCOUNTINGS for each in _accounted(self.home / name)]

    @cached_property
    def clusters(self) -> dict[str, Cluster]:
        """The machines that the series ran on, by name."""
        names = sorted({series.cluster for series in self.series})
        return {name: load_cluster(self.home.parent / "clusters" / f"{name}.toml") for name in names}


def load_tables(home: Path | None = None) -> Tables:
    """Read the tables of the catalogue, or of another folder.

    Raises
    ------
    ScenarioError
        A file is missing or breaks a rule; names file, entry and rule.
    """
    return Tables(home or data_file("series.toml").parent)


def _accounted(path: Path) -> Iterator[Accounted]:
    for fields in rows_in(path):
        yield validated(Accounted, {key: number_of(value) for key, value in fields.items()}, str(path))


def _rows(path: Path) -> Iterator[Row]:
    for number, fields in enumerate(rows_in(path), start=2):
        given: dict[str, Any] = {key: number_of(value) for key, value in fields.items() if value and key in Row.model_fields}
        given["throughput"] = tuple(float(value) for value in fields["throughput"].split())
        yield validated(Row, given, f"{path}: line {number}")


def number_of(text: str) -> int | float | str:
    """A cell of a table as what it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def several(path: Path, key: str, kind: type[SpecT]) -> list[SpecT]:
    """The entries of an array of tables, each validated.

    Raises
    ------
    ScenarioError
        One breaks a rule; names file, entry and rule.
    """
    entries = read_toml(path).get(key, [])
    return [validated(kind, entry, f"{path}: {key} {number}") for number, entry in enumerate(entries, start=1)]


class Tensor(NamedTuple):
    """One gradient, or several put together: elements, share of the backward pass after which it is ready, tensors of the model."""

    elements: float
    ready: float
    of_model: int = 1


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
    for row in rows_in(home / "tensors.csv"):
        found.setdefault(row["network"], []).append(Tensor(float(row["elements"]), 1.0 - float(row["forward_share_before"])))
    return {name: tuple(reversed(tensors)) for name, tensors in found.items()}


def fused(tensors: Sequence[Tensor], pieces: int) -> list[Tensor]:
    """At most ``pieces`` tensors: neighbours put together, each ready with the last of its parts."""
    total = sum(tensor.elements for tensor in tensors)
    done: list[Tensor] = []
    elements = passed = 0.0
    count = 0
    for tensor in tensors:
        elements += tensor.elements
        count += tensor.of_model
        passed += tensor.elements
        if passed >= total * (len(done) + 1) / pieces * (1 - 1e-12):
            done.append(Tensor(elements, tensor.ready, count))
            elements, count = 0.0, 0
    return done


def held_by(tensors: Sequence[Tensor], servers: int, pieces: int) -> list[list[Tensor]]:
    """What each server holds, put together into equally many pieces, at most ``pieces``.

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
                               "creation_index": (len(part) - 1 - place) * servers + server, "ready": min(max(tensor.ready, 0.0), 1.0),
                               "tensors": tensor.of_model})
        for server, part in enumerate(parts)
        for place, tensor in enumerate(part)
    ]  # fmt: skip
    found.sort(key=lambda item: (item[0], item[1]))
    return [variable for _, _, variable in found]
