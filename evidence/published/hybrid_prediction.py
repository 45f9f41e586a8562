"""Published trainings that cut a model, predicted by simulating the scenario that a user would write of each row.

Three methods, each scored separately. *From dimensions*: times follow from the model's
dimensions and the device's datasheet with the constants that users get, to which no such
row was fitted. *Constants fitted*: the same with the constants of
``models/published/hybrids_fitted.toml``, fitted to some rows of one table. *From its smallest
row*: compute is scaled so that the row of the same training with the fewest devices comes
out as measured.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from calibrate.validation.comparison import Compared, drawn_interval, reached_of
from evidence.discrepancy import validated_rows
from evidence.published.hybrids import HybridRow, HybridTables, alpha_beta, base_of_rules, linear, roofline
from evidence.published.prediction import discrepancy_without
from evidence.published.shares import of_decoders
from simulator import simulate
from simulator.base.errors import ScenarioError
from simulator.base.files import read_toml
from simulator.base.spec import Spec
from simulator.base.validation_errors import validated
from simulator.catalogue.loading import scenario_from_table
from simulator.memory import does_not_fit
from simulator.resolve.resolve import resolve
from simulator.results.inadequacy import regime_of
from simulator.scenario import Scenario
from simulator.spec.constants import Known

Way = Literal["from dimensions", "constants fitted", "from its smallest row"]
DIMENSIONS: Way = "from dimensions"
FITTED: Way = "constants fitted"
SMALLEST: Way = "from its smallest row"
WAYS: tuple[Way, ...] = (DIMENSIONS, FITTED, SMALLEST)

FITTED_FILE = "hybrids_fitted.toml"

_SOURCES = {
    "vtrain_ground_truth": "vTrain",
    "megatron_lm": "Megatron-LM",
    "llm_foundry": "llm-foundry",
    "torchtitan": "torchtitan",
    "nemo_megatron_launcher": "NeMo",
    "torchgpipe": "torchgpipe",
}
_RUN = {"steps": 2, "warmup_steps": 1}
_MANY, _FEW = 20_000, 5
"""Passes of a row with more of which it has fewer replications than users have, as composed rows have."""
_AMOEBANET_PARAMETERS = 557e6
"""Huang et al., "GPipe", NeurIPS 2019, table 1: AmoebaNet-D (18, 256)."""
_SOLVED, _ROUNDS = 2e-3, 12


class _Fitted(Spec):
    constants: dict[str, Known]


def fitted_constants(tables: HybridTables) -> dict[str, Known]:
    """Constants fitted to the fitted rows.

    Raises
    ------
    ScenarioError
        The file is missing or broken.
    """
    path = tables.home / FITTED_FILE
    return validated(_Fitted, read_toml(path), str(path)).constants


class Times(NamedTuple):
    """Seconds for a sample, and whatever the batch, of the forward and the backward pass of the whole model on one device."""

    forward_s: float
    forward_least_s: float
    backward_s: float
    backward_least_s: float

    def scaled(self, factor: float) -> Times:
        """All of them times a factor."""
        return Times(*(value * factor for value in self))

    @property
    def table(self) -> dict[str, Any]:
        """As a workload has them."""
        return {
            "forward": {"base_s": 0.0, "per_sample_s": self.forward_s, "least_s": self.forward_least_s},
            "backward": {"base_s": 0.0, "per_sample_s": self.backward_s, "least_s": self.backward_least_s},
        }


def hybrid_scenario(
    tables: HybridTables, row: HybridRow, constants: Mapping[str, Known] | None = None, times: Times | None = None
) -> Scenario:
    """The scenario of a row."""
    return scenario_from_table(hybrid_table(tables, row, constants, times), row.series)


def hybrid_table(
    tables: HybridTables, row: HybridRow, constants: Mapping[str, Known] | None = None, times: Times | None = None
) -> dict[str, Any]:
    """The same as nested tables, as a file of the scenario has them.

    Parameters
    ----------
    constants
        In place of the catalogue's.
    times
        In place of those that follow from dimensions.
    """
    series, facts = tables.of(row), tables.machine_of(row)
    per_node = -(-row.devices // row.nodes)
    cluster: dict[str, Any] = {"use": series.cluster}
    if per_node != facts.devices_per_node:
        cluster |= {"devices_per_node": per_node, "devices_per_host_link": 1}
    composed = _composed(series.table, row.nodes)
    few = row.devices // row.tensor * row.micro_batches > _MANY or composed
    run = _RUN | ({"replications": _FEW} if few else {})
    table: dict[str, Any] = {
        "workload": {
            "name": series.model or row.series,
            "precision": series.precision,
            "batch_per_replica": row.batch,
            **_model(tables, row),
            **(times.table if times is not None else {}),
        },
        "cluster": cluster,
        "strategy": {
            "kind": "hybrid",
            "workers": row.devices,
            "pipeline": row.pipeline,
            "tensor": row.tensor,
            "schedule": series.schedule,
            "stages": "even",
            "shard": series.shard,
            "reduce_precision": series.reduce_precision,
        },
        # fitted constants have what a kernel of these rows takes, host included
        "training": {"micro_batches": row.micro_batches, "recompute": row.recompute}
        | ({"launch": "graph"} if composed and "kernel_start_s" in (constants or {}) else {}),
        # rows that are thought not to fit were run all the same
        "run": {**run, "seed": zlib.crc32(row.series.encode()), "memory": "ignore"},
    }
    if constants:
        table["practice"] = {name: known.model_dump(include={"value", "low", "high"}) for name, known in constants.items()}
    return table


def _model(tables: HybridTables, row: HybridRow) -> dict[str, Any]:
    model = tables.model_of(row)
    if model is None:
        return _equal_layers(tables.of(row).equal_layers or 1)
    return {
        "transformer": {
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "key_value_heads": model.key_heads,
            "sequence": row.sequence,
            "vocabulary": model.vocabulary,
            "feed_forward": model.feed_forward,
            "gated": model.gated,
            "tied": model.tied,
            "positions": 0 if model.gated else None,
            "bias": not model.fused_attention,
            "dropout": not model.fused_attention,
            "attention": "fused" if model.fused_attention else "standard",
            "kernels": tables.of(row).kernels,
        }
    }


def _equal_layers(count: int) -> dict[str, Any]:
    """Equal layers; what they hand on is not known and taken as nothing."""
    size = 4.0 * _AMOEBANET_PARAMETERS / count
    return {
        "variables": [
            {"name": f"layer_{number}", "size_bytes": size, "creation_index": number, "ready": (count - number) / count}
            for number in reversed(range(count))
        ],
        "layers": [
            {"name": f"layer_{number}", "forward": 1.0, "variables": [number], "output_bytes_per_sample": 0.0} for number in range(count)
        ],
    }


def is_composed(row: Compared) -> bool:
    """Whether a row is no independent measurement: vTrain's of one node are linear in micro-batches to the last digit."""
    return _composed(str(row.settings["table"]), row.settings["nodes"])


def _composed(table: str, nodes: float | str) -> bool:
    return table == "vtrain_ground_truth" and nodes == 1


def group_of(tables: HybridTables, row: HybridRow, way: Way) -> str:
    """Rows of one kind and way, scored together."""
    source = _SOURCES[tables.of(row).table]
    if source == "vTrain":
        source += ", one node" if row.nodes == 1 else ", several nodes"
    return f"{source}, {way}"


def ways_of(tables: HybridTables, row: HybridRow) -> tuple[Way, ...]:
    """In which ways a row can be predicted."""
    known = tables.model_of(row) is not None and not tables.of(row).from_its_smallest_row_alone
    can = {DIMENSIONS: known, FITTED: known and not tables.is_fitted(row), SMALLEST: tables.base_of(row) is not None}
    return tuple(way for way in WAYS if can[way])


def hybrid_rows(tables: HybridTables, row: HybridRow, constants: Mapping[str, Known]) -> list[Compared]:
    """A row with its predictions, by every method.

    Parameters
    ----------
    constants
        Those that are fitted.
    """
    found = []
    ways = ways_of(tables, row)
    if DIMENSIONS in ways:
        found.append(_compared(tables, row, DIMENSIONS, hybrid_scenario(tables, row, _without(tables.of(row).table))))
    if FITTED in ways:
        found.append(_compared(tables, row, FITTED, hybrid_scenario(tables, row, constants)))
    if (base := tables.base_of(row)) is not None:
        times = _solved(tables, base)
        found.append(_compared(tables, row, SMALLEST, hybrid_scenario(tables, row, None, times), fitted=row == base, base=base))
    return found


@lru_cache(maxsize=16)
def _without(table: str) -> dict[str, Known]:
    """Constants that users get, as they are without the rows of a table."""
    return {"decoder_matrix_share": of_decoders(validated_rows(), without=table)}


def _compared(
    tables: HybridTables, row: HybridRow, way: Way, scenario: Scenario, *, fitted: bool = False, base: HybridRow | None = None
) -> Compared:
    series = tables.of(row)
    if (regime := regime_of(scenario)) is not None:
        scenario = scenario.model_copy(update={"discrepancy": discrepancy_without(series.table, regime)})
    result = simulate(scenario)
    begun = base_of_rules(tables, [base]) if base is not None else tables.base_of_fitted
    bound = roofline(tables, row)
    baselines = {"linear": linear(tables, begun, row), "alpha-beta": alpha_beta(tables, begun, row)}
    found = Compared(
        name=row.name,
        group=group_of(tables, row, way),
        fitted=fitted,
        unit="samples/s",
        measured=(row.throughput,),
        predicted=result.throughput_samples_per_s,
        baselines=baselines | ({"roofline": bound} if bound is not None else {}),
        settings={
            "table": series.table, "series": series.id, "way": way, "workers": row.devices, "nodes": row.nodes, "tensor": row.tensor,
            "pipeline": row.pipeline, "data": row.data, "micro_batch": row.micro_batch, "micro_batches": row.micro_batches,
            "sequence": row.sequence, "recompute": row.recompute, "shard": series.shard, "cluster": series.cluster, "source": series.source,
            "level": row.level, "fits": "no" if does_not_fit(resolve(scenario)) else "yes",
        },
        note=series.note,
    )  # fmt: skip
    # users have no constants fitted to one table, and know what their layers take
    if fitted or is_composed(found) or way == FITTED or tables.model_of(row) is None:
        return found
    return found.model_copy(
        update={"reached": reached_of(result.discrepancy, drawn_interval(result), source=series.table, series=series.id)}
    )


def _solved(tables: HybridTables, base: HybridRow) -> Times:
    """Times with which the base row comes out as measured; those by dimensions, or equal ones, all times one factor."""
    times = _times_of(tables, base)
    factor = 1.0
    for _ in range(_ROUNDS):
        ratio = simulate(hybrid_scenario(tables, base, None, times.scaled(factor))).throughput_samples_per_s.mean / base.throughput
        if abs(ratio - 1.0) <= _SOLVED:
            return times.scaled(factor)
        factor *= ratio
    raise ScenarioError(f"models/published/hybrids.csv: {base.name}: no compute gives its throughput")


def _times_of(tables: HybridTables, row: HybridRow) -> Times:
    if tables.model_of(row) is None:
        whole_s = row.step_s / row.batch
        return Times(whole_s / 3, 0.0, whole_s * 2 / 3, 0.0)
    load = resolve(hybrid_scenario(tables, row)).workload
    return Times(load.forward.per_sample_s, load.forward.least_s, load.backward.per_sample_s, load.backward.least_s)
