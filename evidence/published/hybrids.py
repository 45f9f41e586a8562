"""Published trainings that cut a model over devices: typed rows, which of them constants are fitted to, and simpler rules.

``models/published/hybrids.csv`` has the rows and ``hybrids.toml`` what they have in common.
A model is given by its dimensions, from which its work follows by formulas; a series
of which not even those are known (AmoebaNet-D) is one of equal layers.
"""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from evidence.published.tables import Excluded, data_file, number_of, several
from evidence.rows import rows_in
from simulator.base.errors import ScenarioError
from simulator.base.files import read_toml
from simulator.base.spec import Spec
from simulator.base.validation_errors import validated
from simulator.catalogue.loading import load_cluster
from simulator.spec.accelerator import accelerator_named
from simulator.spec.cluster import Cluster
from simulator.strategies.holding import ReducePrecision

Count = Annotated[int, Field(ge=1)]


class Model(Spec):
    """A transformer that decodes, by its dimensions."""

    id: str
    layers: Count
    hidden: Count = Field(description="width of what layers hand on")
    heads: Count
    key_heads: Count | None = Field(default=None, description="heads of keys and values, where several queries share one; left out: heads")
    feed_forward: Count | None = Field(default=None, description="width inside; left out: four times the hidden one")
    gated: bool = Field(default=False, description="three matrices in place of two in the feed-forward block")
    vocabulary: Count
    tied: bool = Field(default=True, description="whether the output is multiplied with the embedding's own matrix")
    fused_attention: bool = Field(default=False, description="whether scores of attention never reach the device's memory")
    source: str

    @property
    def layer_parameters(self) -> float:
        """Of one layer's matrices; biases and norms, some tenth of a percent, are left out."""
        keys = self.hidden * (self.key_heads or self.heads) / self.heads
        inside = self.feed_forward or 4 * self.hidden
        return 2.0 * self.hidden * (self.hidden + keys) + (3 if self.gated else 2) * self.hidden * inside

    @property
    def parameters(self) -> float:
        """Of all matrices, embeddings included."""
        return self.layers * self.layer_parameters + (1 if self.tied else 2) * self.vocabulary * self.hidden

    def forward_flops(self, sequence: int) -> tuple[float, float]:
        """Operations of one sequence's forward pass: of all layers, and of the output.

        Two for each parameter and token, and 4 s^2 h a layer for scores and their product
        with the values (Narayanan et al., "Efficient large-scale language model training on
        GPU clusters using Megatron-LM", SC 2021, equation 2).
        """
        layers = self.layers * (2.0 * sequence * self.layer_parameters + 4.0 * sequence * sequence * self.hidden)
        return layers, 2.0 * sequence * self.hidden * self.vocabulary

    def step_flops(self, sequence: int, *, again: bool) -> float:
        """Operations of one sequence's forward and backward pass; ``again``: with each layer's forward pass computed once more."""
        layers, output = self.forward_flops(sequence)
        return layers * (4.0 if again else 3.0) + output * 3.0


class HybridSeries(Spec):
    """Rows of one model, machine and software."""

    id: str
    table: str = Field(description="the source")
    model: str = Field(default="", description="left out: one of equal layers")
    equal_layers: Count | None = Field(default=None, description="how many, of a model whose dimensions are not known")
    cluster: str
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"]
    schedule: Literal["gpipe", "1f1b"]
    shard: Literal["none", "optimizer", "gradients", "parameters"] = "none"
    reduce_precision: ReducePrecision = Field(default="float32", description="what gradients are reduced in")
    kernels: Literal["fused", "separate"] = Field(default="fused", description="whether what follows a product is a kernel of its own")
    from_its_smallest_row_alone: bool = Field(default=False, description="whether no formula tells its work")
    note: str = ""
    source: str


class HybridRow(Spec):
    """One published setting."""

    series: str
    sequence: Count = Field(description="tokens of a sample")
    devices: Count
    nodes: Count
    tensor: Count
    pipeline: Count
    micro_batch: Count = Field(description="samples")
    micro_batches: Count = Field(description="of each replica's step")
    recompute: Literal["none", "selective", "full"]
    throughput: float = Field(gt=0, description="samples (sequences) a second of all devices")
    level: str = Field(description="T text table, D derived from one, L labels of a figure")

    @property
    def data(self) -> int:
        """Replicas of the model."""
        return self.devices // (self.tensor * self.pipeline)

    @property
    def batch(self) -> int:
        """Samples of a replica's step."""
        return self.micro_batch * self.micro_batches

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.data * self.batch / self.throughput

    @property
    def name(self) -> str:
        """Of the setting, in few words."""
        degrees = f"{self.devices} devices, tensor {self.tensor}, pipeline {self.pipeline}"
        sequence = f", sequences of {self.sequence:,}" if self.sequence > 1 else ""
        return f"{self.series}: {degrees}, {self.micro_batches} micro-batches of {self.micro_batch}{sequence}"


class _File(Spec):
    seed: int
    held_out: float = Field(gt=0, lt=1)
    fitted: tuple[str, ...]
    model: tuple[dict[str, Any], ...]
    series: tuple[dict[str, Any], ...]
    excluded: tuple[dict[str, Any], ...] = ()


class HybridTables:
    """``hybrids.toml`` and ``hybrids.csv`` of a folder.

    Attributes
    ----------
    rows
        In the order of the file.
    excluded
        Excluded rows, with reasons.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        path = home / "hybrids.toml"
        self._file = validated(_File, read_toml(path), str(path))
        self.models = {each.id: each for each in several(path, "model", Model)}
        self.series = {each.id: each for each in several(path, "series", HybridSeries)}
        self.excluded = several(path, "excluded", Excluded)
        self.rows = tuple(_rows(home / "hybrids.csv"))
        for row in self.rows:
            if row.series not in self.series:
                raise ScenarioError(f"{home / 'hybrids.csv'}: series {row.series!r} is not in hybrids.toml; add it there")
            if row.devices % (row.tensor * row.pipeline):
                raise ScenarioError(f"{home / 'hybrids.csv'}: {row.name}: tensor x pipeline does not divide the devices")
        for one in self.series.values():
            if (one.model in self.models) == (one.equal_layers is not None):
                raise ScenarioError(f"{path}: {one.id}: give model, one of the file's, or equal_layers")

    @property
    def tables(self) -> list[str]:
        """Names of the tables that the series are of."""
        return sorted({each.table for each in self.series.values()})

    def of(self, row: HybridRow) -> HybridSeries:
        """Common properties of a row with others."""
        return self.series[row.series]

    def model_of(self, row: HybridRow) -> Model | None:
        """The model of a row; none where its dimensions are not known."""
        return self.models.get(self.of(row).model)

    def machine_of(self, row: HybridRow) -> Cluster:
        """The machine of a row."""
        return self.machines[row.series]

    @cached_property
    def machines(self) -> dict[str, Cluster]:
        """The machine of each series."""
        names = {each.cluster for each in self.series.values()}
        clusters = {name: load_cluster(self.home.parent / "clusters" / f"{name}.toml") for name in sorted(names)}
        return {name: clusters[each.cluster] for name, each in self.series.items()}

    def is_fitted(self, row: HybridRow) -> bool:
        """Whether constants are fitted to a row.

        Of the fitted series a share of the layouts (model, devices and degrees) is left out,
        with all their batches: those whose name, with the seed, has a small check sum.
        """
        if row.series not in self._file.fitted:
            return False
        layout = f"{self._file.seed} {row.series} {row.devices} {row.tensor} {row.pipeline}"
        return zlib.crc32(layout.encode()) / 2**32 >= self._file.held_out

    @cached_property
    def fitted_rows(self) -> list[HybridRow]:
        """Those that constants are fitted to."""
        return [row for row in self.rows if self.is_fitted(row)]

    @cached_property
    def base_of_fitted(self) -> Base:
        """Inputs of simpler rules from them."""
        return base_of_rules(self, self.fitted_rows)

    def base_of(self, row: HybridRow) -> HybridRow | None:
        """The smallest row of the same training, where one with more devices is to be predicted from it; none of the fitted table."""
        if row.series in self._file.fitted:
            return None
        its = self.same_training(row)
        return its[0] if its[-1].devices > its[0].devices else None

    def same_training(self, row: HybridRow) -> list[HybridRow]:
        """Rows of the same series and sequence, the fewest devices and the smallest batch first."""
        its = [each for each in self.rows if (each.series, each.sequence) == (row.series, row.sequence)]
        return sorted(its, key=lambda each: (each.devices, each.micro_batches, each.micro_batch))


def load_hybrids(home: Path | None = None) -> HybridTables:
    """Read the tables of the catalogue, or of another folder.

    Raises
    ------
    ScenarioError
        A file is missing or breaks a rule; names file, entry and rule.
    """
    return _loaded((home or data_file("hybrids.toml").parent).resolve())


@lru_cache(maxsize=4)
def _loaded(home: Path) -> HybridTables:
    return HybridTables(home)


def _rows(path: Path) -> list[HybridRow]:
    return [
        validated(HybridRow, {key: number_of(value) for key, value in fields.items()}, f"{path}: line {number}")
        for number, fields in enumerate(rows_in(path), start=2)
    ]


# -- simpler rules --------------------------------------------------------------------------------


def roofline(tables: HybridTables, row: HybridRow) -> float | None:
    """Throughput where every device computes at its peak all the time; none where work or peak are not known."""
    model, peak = tables.model_of(row), _peak(tables, row)
    if model is None or peak is None:
        return None
    return row.devices * peak / model.step_flops(row.sequence, again=row.recompute == "full")


class Base(NamedTuple):
    """Inputs of simpler rules from the first rows.

    Attributes
    ----------
    of_bound
        Throughput as a share of the roofline; where that is not known, a device's share of the throughput.
    of_compute
        Seconds of a step without bubble and messages, over those of a step at the peak.
    """

    of_bound: float
    of_compute: float


def base_of_rules(tables: HybridTables, rows: Sequence[HybridRow]) -> Base:
    """Medians over some rows."""
    bounds, computes = [], []
    for row in rows:
        left_s = max(row.step_s - _messages_s(tables, row), _LEAST_LEFT * row.step_s)
        bounds.append(row.throughput / (roofline(tables, row) or row.devices))
        computes.append(left_s / (_ideal_s(tables, row) * _with_bubble(row)))
    return Base(statistics.median(bounds), statistics.median(computes))


def linear(tables: HybridTables, base: Base, row: HybridRow) -> float:
    """Throughput where every device does as large a share of its peak as those of the base rows: ideal scaling."""
    return base.of_bound * (roofline(tables, row) or row.devices)


def alpha_beta(tables: HybridTables, base: Base, row: HybridRow) -> float:
    """Throughput of compute, the pipeline's bubble and communication at nominal rates, nothing overlapped.

    A step of m micro-batches in p stages takes (m + p - 1) / m of its compute (Huang et al.,
    "GPipe", NeurIPS 2019, section 3.2), and messages are those of :func:`_messages_s`.
    """
    compute_s = _ideal_s(tables, row) * _with_bubble(row) * base.of_compute
    return row.data * row.batch / (compute_s + _messages_s(tables, row))


_LEAST_LEFT = 0.05
"""Share of a base row's step that counts as compute, whatever the formula says of the rest."""


def _ideal_s(tables: HybridTables, row: HybridRow) -> float:
    bound = roofline(tables, row)
    return row.data * row.batch / bound if bound else row.batch / row.pipeline


def _with_bubble(row: HybridRow) -> float:
    return (row.micro_batches + row.pipeline - 1) / row.micro_batches


def _peak(tables: HybridTables, row: HybridRow) -> float | None:
    device = accelerator_named(tables.machine_of(row).device)
    return None if device is None else device.peak(tables.of(row).precision)


def _messages_s(tables: HybridTables, row: HybridRow) -> float:
    """Seconds of a step's messages, one after the other, each ring over the slowest link that it crosses.

    A split layer has two all-reduces of its output in the forward and two in the backward
    pass, and the former once more where it is computed again (Shoeybi et al., "Megatron-LM",
    arXiv:1909.08053, section 3); a stage hands on its output and gets as much back; gradients
    are reduced among replicas, of which parameters in shards are gathered twice besides
    (Rajbhandari et al., "ZeRO", SC 2020, section 7). Two bytes an element.
    """
    model, facts = tables.model_of(row), tables.machine_of(row)
    if model is None:
        return 0.0
    layers = model.layers / row.pipeline
    output = 2.0 * row.micro_batch * row.sequence * model.hidden
    again = 1 if row.recompute == "full" else 0
    tensor_s = _ring_s(facts, row.tensor, output, 1) * layers * row.micro_batches * (4 + 2 * again)
    stages_s = 2 * row.micro_batches * output / _rate(facts, row.pipeline * row.tensor, row.tensor) if row.pipeline > 1 else 0.0
    held = 2.0 * (layers * model.layer_parameters + model.vocabulary * model.hidden) / row.tensor
    rounds = 1.5 * row.micro_batches if tables.of(row).shard == "parameters" else 1.0
    return tensor_s + stages_s + rounds * _ring_s(facts, row.data, held, row.tensor)


def _ring_s(facts: Cluster, members: int, size_bytes: float, stride: int) -> float:
    """All-reduce among devices that are ``stride`` apart (Patarasuk and Yuan 2009)."""
    if members == 1:
        return 0.0
    rounds = 2 * (members - 1)
    link = facts.inter_node if members * stride > facts.devices_per_node else facts.intra_node
    return float(rounds * link.latency_s + rounds / members * size_bytes / _rate(facts, members * stride, stride))


def _rate(facts: Cluster, span: int, beside: int) -> float:
    """Bytes a second between devices, of which as many groups as ``beside`` share the adapters of a node."""
    if span <= facts.devices_per_node:
        return float(facts.intra_node.bandwidth_bytes_per_s)
    return float(facts.inter_node.bandwidth_bytes_per_s * facts.nics_per_node / min(beside, facts.devices_per_node))
