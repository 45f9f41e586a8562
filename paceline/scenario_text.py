"""The text of a first scenario from a few figures, with a comment on each key and its alternatives.

The template is ``first_scenario.toml.jinja``. The fields of :class:`Figures` are the arguments of ``paceline.new_scenario`` and so the
options of ``paceline init``. ``cli/keys.json`` repeats ``BEGUN_WITH`` and ``SORTS`` for completion: after a change run
``python docs/completion_keys.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.base.catalog import find
from simulator.base.errors import InputError, UnitError
from simulator.base.spec import short_name
from simulator.base.text import did_you_mean, format_bytes, format_seconds, listed
from simulator.base.units import Dimension, parse_quantity
from simulator.base.validation_errors import quoted
from simulator.catalogue.loading import load_cluster
from simulator.resolve.measured_defaults import is_nominal
from simulator.spec.constants import constants
from simulator.spec.prices import price_of_text
from simulator.spec.training import SLOTS
from simulator.strategies.catalogue import KINDS, SHORT_NAMES, kind_of, strategy_table

OWN = "own"
"""Name of a workload or cluster that is described in the scenario itself."""
BEGUN_WITH = ("single", "mirrored", "ring", "halving-doubling", "tree", "hierarchical", "auto", "sync-ps", "backup", "async-ps", "ssp")
"""Strategies that a few figures suffice for."""

SORTS: Mapping[str, str] = {
    "ethernet": "the rate of the port, of which TCP achieves a share",
    "rdma": "the rate of the adapter (InfiniBand, RoCE), of which collectives achieve a share",
    "given": "the measured rate of transfers",
}
"""Kinds of bandwidth between machines."""
_OF_SORTS = "specified: the bandwidth that transfers achieve"
_EXAMPLES: dict[Dimension, str] = {"time": "'250 ms'", "rate": "'10 Gbit/s'", "information": "'64 MiB'", "power": "'0.5 kW'"}
NODES = 4
"""Default number of machines."""
_BYTES_PER_PARAMETER = 4
_CONCENTRATION = 14.0
"""Sizes fall with their rank as exp(-14 rank / tensors), fitted to the median cumulated sizes of seven networks
(models/published/tensors.csv). The largest variable has 9% of the parameters, the eight largest have half."""
_TENSORS, _MOST_TENSORS = 160, 100_000
"""Variables of such a workload: ResNet-50 has 161, BERT-base about 200."""
MEASURED_WITH: Mapping[str, str] = {
    "device": "compute only",
    "servers": "one worker with parameter servers, its pull and push included",
}
"""What a step's time may include."""


@dataclass(frozen=True)
class Figures:
    """Figures of a training; the most usual values by default.

    The attributes are the arguments of :func:`paceline.new_scenario`; :data:`OWN` means a workload or cluster that they describe.
    """

    workload: str = OWN
    step_time: str | float | None = None
    parameters: float | None = None
    batch: int = 32
    tensors: int | None = None
    measured_with: str = "device"
    cluster: str = OWN
    nodes: int | None = None
    devices: int = 1
    bandwidth: str | float = "10 Gbit/s"
    latency: str | float = "50 us"
    sort: str = "ethernet"
    price: str | None = None
    strategy: str = "ring"
    workers: int | None = None
    servers: int = 1
    largest: float | None = None
    optimizer: str = "adam"
    epochs: float | None = None
    dataset_size: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "tensors", "nodes", "devices", "workers", "servers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"`{name}`: {value} must be at least 1")
        if self.strategy not in BEGUN_WITH:
            if self.strategy in SHORT_NAMES:
                raise InputError(
                    f"`strategy` {self.strategy!r}: needs more figures than these; start from an example, "
                    f"such as `paceline simulate pipeline`, or with one of {', '.join(BEGUN_WITH)}"
                )
            hint = did_you_mean(self.strategy, BEGUN_WITH, f"there are {', '.join(BEGUN_WITH)}")
            raise InputError(f"`strategy` {quoted(self.strategy)}: is not a strategy; {hint}")
        for name, words, hint in (
            ("sort", SORTS, _OF_SORTS),
            ("measured_with", MEASURED_WITH, "device: computing alone"),
            ("optimizer", SLOTS, f"there are {', '.join(SLOTS)}"),
        ):
            if (value := getattr(self, name)) not in words:
                raise InputError(f"`{name}` {quoted(value)}: must be one of {', '.join(words)}; {did_you_mean(value, words, hint)}")
        if self.measured_with == "servers" and not self.has_servers:
            raise InputError("`measured_with` servers: needs a strategy with parameter servers, such as async-ps; or give device")
        if self.tensors is not None and self.tensors > _MOST_TENSORS:
            raise InputError(f"`tensors`: {self.tensors} must be at most {_MOST_TENSORS:,}")
        if self.has_servers and self.machines <= self.servers:
            raise InputError(
                f"`nodes`: {self.machines} must be at least {self.servers + 1}: each server (`servers` {self.servers}) takes a machine, "
                "and workers need one"
            )
        if self.workload == OWN and (self.step_time is None or self.parameters is None):
            missing = "step_time" if self.step_time is None else "parameters"
            raise InputError(f"`{missing}`: is missing; give `step_time` and `parameters` of your model, or name a measured `workload`")
        if self.largest is not None and not 0 < self.largest <= 1:
            raise InputError(f"`largest`: {self.largest:g} must be a share of the parameters, above 0 and at most 1, such as 0.1")
        if self.parameters is not None and not 1 <= self.parameters <= 1e15:
            raise InputError(f"`parameters`: {self.parameters:g} must be at least 1 and at most 1e15")
        if (self.epochs is None) != (self.dataset_size is None):
            known, other = ("epochs", "dataset_size") if self.dataset_size is None else ("dataset_size", "epochs")
            raise InputError(f"`{known}`: needs `{other}`; give both or neither")

    @property
    def has_servers(self) -> bool:
        """Whether the strategy uses parameter servers."""
        return kind_of(SHORT_NAMES[self.strategy]).has_servers

    @property
    def machines(self) -> int:
        """Number of machines for workers and servers."""
        if self.nodes is not None:
            return self.nodes
        return NODES if self.workers is None else self.workers + (self.servers if self.has_servers else 0)

    @property
    def devices_per_node(self) -> int:
        """Devices of a machine, from the catalogue if it has the cluster."""
        if self.cluster == OWN:
            return self.devices
        return load_cluster(find("clusters", self.cluster, "`cluster`")).devices_per_node

    @property
    def is_nominal(self) -> bool:
        """Whether links of the cluster have a kind, so that step times scatter like those of real devices."""
        if self.cluster == OWN:
            return self.sort != "given" or self.devices > 1
        return is_nominal(load_cluster(find("clusters", self.cluster, "`cluster`")))


def quantity_of(quantity: str | float, dimension: Dimension, argument: str) -> float:
    """Return a quantity in SI units, above zero.

    Raises
    ------
    InputError
        The text is not such a quantity.
    """
    where = f"`{argument}`" if "=" in argument else f"`{argument}`: {quoted(quantity)}"
    try:
        value = parse_quantity(quantity, dimension) if isinstance(quantity, str) else float(quantity)
    except UnitError as error:
        raise InputError(f"{where} {str(error).removeprefix(f'{quantity!r} ')}") from None
    if not value > 0:
        raise InputError(f"{where} must be above 0, such as {_EXAMPLES[dimension]}")
    return value


def text_of(figures: Figures, name: str) -> str:
    """Return the text of a scenario file with this name.

    Raises
    ------
    InputError
        A figure cannot be read.
    ScenarioError
        No workload or cluster has the name.
    """
    import jinja2

    filters: dict[str, Any] = {"toml": _toml, "seconds": format_seconds, "bytes": format_bytes}
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)  # noqa: S701 - no page
    environment.filters |= filters
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    known = {**_workload(figures), **_cluster(figures), **_strategy(figures)}
    text = template.render(figures=figures, name=name, own=OWN, measured_with=MEASURED_WITH, of_strategy=_OF_STRATEGY, **known)
    return "\n\n".join(map(_aligned, text.split("\n\n"))) + "\n"


def _aligned(section: str) -> str:
    """Return lines with their comments, given after a tab, aligned in one column where they fit."""
    lines = [line.partition("\t") for line in section.splitlines()]
    width = max((len(text) for text, tab, _ in lines if tab and len(text) <= _WIDEST), default=0)
    return "\n".join(f"{text:<{width}}  # {comment}" if tab else text for text, tab, comment in lines)


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    import tomlkit

    return tomlkit.item(int(value) if isinstance(value, float) and value.is_integer() else value).as_string()


def _workload(figures: Figures) -> dict[str, Any]:
    """Return values of the template for a workload that the figures describe."""
    if figures.workload != OWN:
        find("workloads", figures.workload, "`workload`")
        return {}
    assert figures.step_time is not None
    assert figures.parameters is not None
    step_s, size = quantity_of(figures.step_time, "time", "step_time"), figures.parameters * _BYTES_PER_PARAMETER
    tensors = figures.tensors or max(_TENSORS, figures.servers)
    parts = list(_parts(tensors, figures.largest))
    variables = []
    for place, (count, share) in enumerate(parts):
        ready = ((place + 1) / len(parts)) ** 2  # large ones belong to late layers, whose gradients come first
        part_bytes, created = max(size * share, _BYTES_PER_PARAMETER * count), len(parts) - place - 1
        variable = {"name": f"part {created + 1}", "size": f"{part_bytes:.0f} B", "creation_index": created, "ready": round(ready, 6)}
        variables.append({**variable, "tensors": count})

    def passes(share: float) -> dict[str, str]:
        return {"base": "0 s", "per_sample": f"{step_s * share / figures.batch * 1e6:.6g} us"}

    return {
        "step_s": step_s, "size": size, "tensors": tensors, "largest": parts[0][1], "variables": variables, "passes": passes,
        "scatter": constants()["straggler_cv"].value,
    }  # fmt: skip


def _parts(tensors: int, largest: float | None) -> Iterator[tuple[int, float]]:
    """Return groups of tensors of similar size, largest first, and their share of the parameters: 1, 2, 4, ... and the rest."""

    def cumulated(rank: float) -> float:
        return math.expm1(-_CONCENTRATION * rank / tensors) / math.expm1(-_CONCENTRATION)

    scale = 1.0 if largest is None or tensors == 1 else (1.0 - largest) / (1.0 - cumulated(1))
    first, count = 0, 1
    while first < tensors:
        last = min(first + count, tensors)
        share = largest if largest is not None and not first and tensors > 1 else scale * (cumulated(last) - cumulated(first))
        yield last - first, share
        first, count = last, 2 * count


def _cluster(figures: Figures) -> dict[str, Any]:
    """Return values of the template for machines, links and their price."""
    link: dict[str, str | float] = {}
    for key, full, value in (("bandwidth", "bandwidth_bytes_per_s", figures.bandwidth), ("latency", "latency_s", figures.latency)):
        quantity_of(value, "rate" if key == "bandwidth" else "time", key)
        link[key if isinstance(value, str) else full] = value
    if figures.sort != "given":
        link["sort"] = figures.sort
    price = None if figures.price is None else price_of_text(figures.price, "`price`")
    owned = None
    if price is not None and price.owned is not None:
        owned = {short_name(key): f"{value:g} W" if key == "power_w" else value for key, value in price.owned.model_dump().items()}
    return {"link": link, "inside": _INSIDE, "price": price, "owned": owned}


def _strategy(figures: Figures) -> dict[str, Any]:
    """Return values of the template for the strategy."""
    table, devices = strategy_table(figures.strategy, {}), figures.devices_per_node
    kind = kind_of(table)
    by_fit = "keras" in kind.model_validate(table).software
    alone = "replicas_per_worker" not in kind.model_fields  # one process on one machine
    if kind.count_key:
        table[kind.count_key] = figures.workers or (devices if alone else figures.machines - (figures.servers if kind.has_servers else 0))
    if not alone:
        table["replicas_per_worker"] = devices
    if kind.has_servers:
        table["servers"] = figures.servers
    buckets = kind.model_fields.get("bucket_size_bytes")
    return {"strategy": table, "by_fit": by_fit, "buckets_left_out": buckets is not None and buckets.default is None}


_TEMPLATE = Path(__file__).with_name("first_scenario.toml.jinja")
_WIDEST = 44
"""Column of the comments after short lines."""
_INSIDE = {"bandwidth": "15.75 GB/s", "latency": "5 us", "sort": "pcie"}
"""Sixteen lanes of PCIe 3.0: 8 GT/s each, 128 of 130 bits of which are data (PCI Express base specification 3.0)."""
_OF_STRATEGY = {
    "kind": listed(list(KINDS), "or"),
    "algorithm": "all-reduce algorithm; auto: the fastest for each size",
    "mode": "sync, async, or ssp with a bound",
    "bound": "steps that the fastest worker may be ahead of the slowest",
    "backup_workers": "slowest workers of each step, not waited for",
    "workers": "processes, one on each machine",
    "replicas_per_worker": "devices that a worker drives",
    "replicas": "devices of the machine",
    "servers": "parameter servers, each on its own machine",
}
