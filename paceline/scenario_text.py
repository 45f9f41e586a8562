"""Writes the text of a first scenario from a few figures, with a comment on each key and on what else it could be.

The fields of :class:`Figures` are the arguments of ``paceline.new_scenario`` and so the options of ``paceline init``. ``BEGUN_WITH``
and ``SORTS`` also go into ``cli/keys.json`` for completion: write that anew by ``python -m paceline.cli.completing``.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator.base.catalog import find
from simulator.base.errors import InputError, UnitError
from simulator.base.spec import short_name
from simulator.base.text import did_you_mean, format_bytes, format_seconds, listed
from simulator.base.units import Dimension, parse_quantity
from simulator.base.validation_errors import quoted
from simulator.catalogue.loading import load_cluster, scenario_from_table
from simulator.resolve.practice import is_nominal
from simulator.scenario import Scenario
from simulator.spec.constants import constants
from simulator.spec.paying import Price
from simulator.spec.prices import price_of_text
from simulator.spec.training import SLOTS
from simulator.strategies.catalogue import KINDS, SHORT_NAMES, kind_of, strategy_table

OWN = "own"
"""Stands for a workload or cluster that is described in the scenario itself."""
BEGUN_WITH = ("single", "mirrored", "ring", "halving-doubling", "tree", "hierarchical", "auto", "sync-ps", "backup", "async-ps", "ssp")
"""Names of strategies that a few figures are enough for."""

SORTS: Mapping[str, str] = {
    "ethernet": "the rate of the port, of which TCP gets a share",
    "rdma": "the rate of the adapter (InfiniBand, RoCE), of which collectives get a share",
    "given": "what transfers get, as measured",
}
"""What the bandwidth between machines is."""
_OF_SORTS = "given: the bandwidth is what transfers get"
_EXAMPLES: dict[Dimension, str] = {"time": "'250 ms'", "rate": "'10 Gbit/s'", "information": "'64 MiB'", "power": "'0.5 kW'"}
NODES = 4
"""Machines, where nothing says how many."""
_BYTES_PER_PARAMETER = 4
_CONCENTRATION = 14.0
"""Sizes fall with their rank as exp(-14 rank / tensors): fitted to the median of the cumulated sizes of seven networks
(models/published/tensors.csv), of whose parameters the largest variable has 9% and the eight largest half."""
_TENSORS, _MOST_TENSORS = 160, 100_000
"""Variables of such a workload: ResNet-50 has 161, BERT-base some 200."""
MEASURED_WITH: Mapping[str, str] = {
    "device": "computing alone",
    "servers": "one worker with the parameter servers, its pull and push included",
}
"""What a step's time may hold."""


@dataclass(frozen=True)
class Figures:
    """What is known of a training: of what is left out, the most usual.

    Its attributes are the arguments of :func:`paceline.new_scenario`; :data:`OWN` stands for a workload or cluster that they describe.
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
                    f"`strategy` {self.strategy!r}: needs more than these figures; begin from an example, "
                    f"such as `paceline simulate pipeline`, or with one of {', '.join(BEGUN_WITH)}"
                )
            hint = did_you_mean(self.strategy, BEGUN_WITH, f"there are {', '.join(BEGUN_WITH)}")
            raise InputError(f"`strategy` {quoted(self.strategy)}: is no name of a strategy; {hint}")
        if self.sort not in SORTS:
            raise InputError(f"`sort` {quoted(self.sort)}: must be one of {', '.join(SORTS)}; {did_you_mean(self.sort, SORTS, _OF_SORTS)}")
        if self.measured_with not in MEASURED_WITH:
            hint = did_you_mean(self.measured_with, MEASURED_WITH, "device: computing alone")
            raise InputError(f"`measured_with` {quoted(self.measured_with)}: must be one of {', '.join(MEASURED_WITH)}; {hint}")
        if self.measured_with == "servers" and not self.has_servers:
            raise InputError("`measured_with` servers: needs a strategy with parameter servers, such as async-ps; or give device")
        if self.tensors is not None and self.tensors > _MOST_TENSORS:
            raise InputError(f"`tensors`: {self.tensors} must be at most {_MOST_TENSORS:,}")
        if self.has_servers and self.machines <= self.servers:
            raise InputError(
                f"`nodes`: {self.machines} must be at least {self.servers + 1}: each of `servers` {self.servers} takes a machine of its "
                "own, and workers need one"
            )
        if self.workload == OWN and (self.step_time is None or self.parameters is None):
            missing = "step_time" if self.step_time is None else "parameters"
            raise InputError(
                f"`{missing}`: is missing: a workload of your own needs `step_time` and `parameters`; or name one "
                "that is measured as `workload`"
            )
        if self.largest is not None and not 0 < self.largest <= 1:
            raise InputError(f"`largest`: {self.largest:g} must be a share of the parameters, above 0 and at most 1, such as 0.1")
        if self.optimizer not in SLOTS:
            hint = did_you_mean(self.optimizer, SLOTS, f"there are {', '.join(SLOTS)}")
            raise InputError(f"`optimizer` {quoted(self.optimizer)}: must be one of {', '.join(SLOTS)}; {hint}")
        if self.parameters is not None and not 1 <= self.parameters <= 1e15:
            raise InputError(f"`parameters`: {self.parameters:g} must be at least 1 and at most 1e15")
        if (self.epochs is None) != (self.dataset_size is None):
            given, other = ("epochs", "dataset_size") if self.dataset_size is None else ("dataset_size", "epochs")
            raise InputError(f"`{given}`: goes with `{other}`; give both, or leave both out")

    @property
    def has_servers(self) -> bool:
        """Whether the strategy has parameter servers."""
        return kind_of(SHORT_NAMES[self.strategy]).has_servers

    @property
    def machines(self) -> int:
        """How many machines workers and servers have."""
        if self.nodes is not None:
            return self.nodes
        return NODES if self.workers is None else self.workers + (self.servers if self.has_servers else 0)

    @property
    def devices_per_node(self) -> int:
        """Devices of a machine, as the catalogue has them where it has the cluster."""
        if self.cluster == OWN:
            return self.devices
        return load_cluster(find("clusters", self.cluster, "`cluster`")).devices_per_node

    @property
    def is_nominal(self) -> bool:
        """Whether links of the cluster say what sort they are, so that step times scatter as those of real devices do."""
        if self.cluster == OWN:
            return self.sort != "given" or self.devices > 1
        return is_nominal(load_cluster(find("clusters", self.cluster, "`cluster`")))


def quantity_of(given: str | float, dimension: Dimension, argument: str) -> float:
    """A quantity in SI units, above zero.

    Raises
    ------
    InputError
        It is none.
    """
    try:
        value = parse_quantity(given, dimension) if isinstance(given, str) else float(given)
    except UnitError as error:
        raise InputError(f"`{argument}`: {quoted(given)} {str(error).removeprefix(f'{given!r} ')}") from None
    if not value > 0:
        raise InputError(f"`{argument}`: {quoted(given)} must be above 0, such as {_EXAMPLES[dimension]}")
    return value


def scenario_of(text: str, source: str, beside: Path | None) -> Scenario:
    """The scenario that a text describes, validated; ``source`` names it in messages."""
    return scenario_from_table(tomllib.loads(text), source, beside)


def text_of(figures: Figures, name: str) -> str:
    """The text of a scenario file that is going to have this name.

    Raises
    ------
    InputError
        A figure cannot be read.
    ScenarioError
        There is no workload or cluster of the name.
    """
    training = [_training(figures)] if figures.has_servers else []
    sections = (_workload(figures), _cluster(figures), _strategy(figures), *training, _job(figures), _run())
    head = (
        f"# Written by `paceline init`. Change any key here, or for one run: paceline simulate {name} --set KEY=VALUE",
        "# All keys: paceline schema scenario. Workloads, clusters and devices to name here: paceline models list",
    )
    return "\n\n".join("\n".join(part) for part in (head, *map(_aligned, sections))) + "\n"


Line = tuple[str, str]
"""What stands in a line, and the comment behind it."""


def _aligned(lines: Iterator[Line]) -> list[str]:
    """Lines with their comments in one column, where the line leaves room."""
    pairs = list(lines)
    width = max((len(text) for text, comment in pairs if comment and len(text) <= _WIDEST), default=0)
    return [f"{text:<{width}}  # {comment}" if comment else text for text, comment in pairs]


_WIDEST = 44


def _key(name: str, value: object, comment: str = "", *, out: bool = False) -> Line:
    """A key with its value; with ``out`` as a comment, for whoever wants it."""
    return f"{'# ' if out else ''}{name} = {_toml(value)}", comment


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(its)}" for key, its in value.items()) + " }"
    import tomlkit

    return tomlkit.item(int(value) if isinstance(value, float) and value.is_integer() else value).as_string()


def _workload(figures: Figures) -> Iterator[Line]:
    batch = _key("batch_per_replica", figures.batch, "samples each replica takes a step; global_batch instead: all of them together")
    yield "[workload]", "a training step on one device"
    if figures.workload != OWN:
        find("workloads", figures.workload, "`workload`")
        yield _key("use", figures.workload, "`paceline models list` shows others; `paceline calibrate` measures yours")
        yield batch
        return
    assert figures.step_time is not None
    assert figures.parameters is not None
    step_s = quantity_of(figures.step_time, "time", "step_time")
    size = figures.parameters * _BYTES_PER_PARAMETER
    yield (
        f"# An estimate from a step of {format_seconds(step_s)} and {figures.parameters:,.0f} parameters. To measure all of this table:",
        "",
    )
    yield "#   paceline calibrate my_model.py:build --name mine", ""
    yield '# and then put   use = "mine"   in its place, beside the batch', ""
    yield batch
    for part, share in (("forward", 1 / 3), ("backward", 2 / 3)):
        per_sample = {"base": "0 s", "per_sample": f"{step_s * share / figures.batch * 1e6:.6g} us"}
        words = "a third of the step; its time is base + per_sample x samples" if part == "forward" else "two thirds"
        yield _key(part, per_sample, words)
    yield _key("calibrated", {"batch": [figures.batch, figures.batch]}, "fewest and most samples that a step was timed with")
    scatter = constants()["straggler_cv"].value
    yield _key(
        "jitter",
        {"kind": "lognormal", "sigma": scatter},
        f"how much steps differ; left out: by {scatter:.2g} of a step, as where none was measured (practice.straggler_cv)"
        if figures.is_nominal
        else "how much steps differ: an assumption; kinds: constant, lognormal, gamma, exponential",
        out=figures.is_nominal,
    )
    if figures.measured_with != "device":
        yield _key("measured_with", figures.measured_with, MEASURED_WITH[figures.measured_with])
    tensors = figures.tensors or max(_TENSORS, figures.servers)
    parts = list(_parts(tensors, figures.largest))
    of_sizes = "given" if figures.largest is not None else "as in most published networks, an assumption: give --largest"
    of_model = f"{tensors} tensors" if figures.tensors else f"{tensors} tensors, an assumption: hosts of parameter servers work on each"
    yield "variables = [", f"{format_bytes(size)} of float32; the largest has {parts[0][1]:.1%} of it, {of_sizes}; {of_model}"
    for place, (count, share) in enumerate(parts):
        ready = ((place + 1) / len(parts)) ** 2  # large ones belong to late layers, whose gradients come first
        part_bytes, created = max(size * share, _BYTES_PER_PARAMETER * count), len(parts) - place - 1
        variable = {"name": f"part {created + 1}", "size": f"{part_bytes:.0f} B", "creation_index": created, "ready": round(ready, 6),
                    "tensors": count}  # fmt: skip
        yield f"    {_toml(variable)},", ""
    yield "]", ""


def _parts(tensors: int, largest: float | None) -> Iterator[tuple[int, float]]:
    """Numbers of tensors of about one size, from the largest on, and their share of the parameters: 1, 2, 4, ... and the rest."""

    def cumulated(rank: float) -> float:
        return math.expm1(-_CONCENTRATION * rank / tensors) / math.expm1(-_CONCENTRATION)

    scale = 1.0 if largest is None or tensors == 1 else (1.0 - largest) / (1.0 - cumulated(1))
    first, count = 0, 1
    while first < tensors:
        last = min(first + count, tensors)
        share = largest if largest is not None and not first and tensors > 1 else scale * (cumulated(last) - cumulated(first))
        yield last - first, share
        first, count = last, 2 * count


def _cluster(figures: Figures) -> Iterator[Line]:
    own = figures.cluster == OWN
    link = {"bandwidth": figures.bandwidth, "latency": figures.latency}
    for key, dimension in (("bandwidth", "rate"), ("latency", "time")):
        quantity_of(link[key], dimension, key)  # type: ignore[arg-type]
    yield "[cluster]", "machines, their devices, and the network between them"
    if own:
        yield _key("devices_per_node", figures.devices, "GPUs of a machine; 1 where its CPU computes")
        if figures.devices > 1:
            yield _key("intra_node", _INSIDE, "between its devices: PCIe 3.0; with NVLink its rate and sort nvlink")
        said = {} if figures.sort == "given" else {"sort": figures.sort}
        comment = "network of a machine, each way; without sort: what transfers get, as `paceline calibrate-link` measures it"
        yield _key("inter_node", {**_with_units(link), **said}, comment)
    else:
        yield _key("use", figures.cluster, "`paceline models list` shows others; --cluster own describes yours")
    yield _key(
        "available", figures.machines, "machines there are, a limit that costs nothing; left out: no limit", out=figures.nodes is None
    )
    yield _key("nodes", figures.machines, "machines that a run pays for, idle ones too; left out: those that it needs", out=True)
    if figures.price is not None:
        yield from _price(price_of_text(figures.price, "`price`"))
    elif own:
        yield _key("price", {"usd_per_node_hour": 0.4}, "US dollars for a machine for an hour; without it costs are not known", out=True)


def _price(price: Price) -> Iterator[Line]:
    """What a machine costs for an hour; of one that is bought what an hour is worked out of."""
    if price.owned is None:
        yield _key("price", {"usd_per_node_hour": price.usd_per_node_hour}, "US dollars for a machine for an hour")
        return
    yield _key(
        "price.purchase_usd", price.purchase_usd, "US dollars to buy it: a budget of `paceline plan` is what all of them may cost to buy"
    )
    owned = {short_name(key): f"{value:g} W" if key == "power_w" else value for key, value in price.owned.model_dump().items()}
    yield _key(
        "price.owned", owned, "of which an hour is worked out; also power, pue, usd_per_kwh, hosting_usd_per_month, overhead_per_year"
    )
    if price.share_in_use is not None:
        yield _key("price.share_in_use", price.share_in_use, "share of all hours in which it works")
    yield _key("price.source", "given by the user", "who says so")


_INSIDE = {"bandwidth": "15.75 GB/s", "latency": "5 us", "sort": "pcie"}
"""Sixteen lanes of PCIe 3.0: 8 GT/s each, 128 of 130 bits of which are data (PCI Express base specification 3.0)."""


def _with_units(link: Mapping[str, str | float]) -> dict[str, str | float]:
    """Texts with units under short names, plain numbers under full ones."""
    full = {"bandwidth": "bandwidth_bytes_per_s", "latency": "latency_s"}
    return {key if isinstance(value, str) else full[key]: value for key, value in link.items()}


def _strategy(figures: Figures) -> Iterator[Line]:
    table, devices = strategy_table(figures.strategy, {}), figures.devices_per_node
    its = kind_of(table)
    machines = figures.machines - (figures.servers if its.has_servers else 0)
    alone = "replicas_per_worker" not in its.model_fields  # one process on one machine
    if its.count_key:
        table[its.count_key] = figures.workers or (devices if alone else machines)
    if not alone:
        table["replicas_per_worker"] = devices
    if its.has_servers:
        table["servers"] = figures.servers
    by_fit = "keras" in its.model_validate(strategy_table(figures.strategy, {})).software
    limit = "" if by_fit else "; fit of Keras 3 under TensorFlow trains on one machine only"
    yield "[strategy]", f"how replicas share the work{limit}"
    yield from (_key(key, value, _OF_STRATEGY.get(key, "")) for key, value in table.items())
    if "bucket_size_bytes" in its.model_fields and its.model_fields["bucket_size_bytes"].default is None:
        yield _key("bucket_size", _BUCKET, _OF_STRATEGY["bucket_size"], out=True)


_BUCKET = "4 MiB"
"""A size that most models fill several times."""
_OF_STRATEGY = {
    "kind": listed(list(KINDS), "or"),
    "algorithm": "of the all-reduce; auto: whichever is fastest for each size",
    "mode": "sync, async, or ssp with a bound",
    "bound": "steps that the fastest worker may be ahead of the slowest",
    "backup_workers": "the slowest ones of each step, which are not waited for",
    "workers": "processes, one on each machine",
    "replicas_per_worker": "devices that a worker drives",
    "replicas": "devices of the one machine",
    "servers": "parameter servers, each on a machine of its own",
    "bucket_size": "parts of the gradients (bytes_per_pack) that are reduced during the backward pass; left out, as TensorFlow does by "
    "itself: all as one at its end",
}


def _training(figures: Figures) -> Iterator[Line]:
    yield "[training]", "how a step is computed"
    says = "its slots are updated on the servers, at the bandwidth of their memory (practice.server_update_byte_s)"
    yield _key("optimizer", figures.optimizer, f"{says}; workload.server in its place: what was measured")


def _job(figures: Figures) -> Iterator[Line]:
    out = figures.epochs is None
    yield ("# [job]" if out else "[job]"), "the whole training: its time and cost; left out: steps alone"
    yield _key("epochs", 90 if figures.epochs is None else figures.epochs, "passes over the data set", out=out)
    size = 1_281_167 if figures.dataset_size is None else figures.dataset_size
    yield _key("dataset_size", size, "samples of one epoch; start-up, evaluation, checkpoints and faults are keys of [job] too", out=out)


def _run() -> Iterator[Line]:
    yield "[run]", "how long and how often it is simulated"
    yield _key("steps", 100, "of each worker; the first tenth is not measured")
    yield _key("replications", 19, "independent runs; 19 give a 90% interval, more a steadier one")
    yield _key("seed", 1, "the same seed gives the same result")
