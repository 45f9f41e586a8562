"""Mutations of valid files: each gives a result, or an error of ours that says so, and nothing else."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import damage
from support.damage import as_file
from support.examples import examples
from support.measurements import Truth, gamma_of, step_records

from calibrate.fit.step import fit_workload
from calibrate.measurements import MeasurementsError
from paceline.sweeping import read_results
from simulator import load_cluster, load_scenario, load_workload, scenario_from_table, simulate
from simulator.base.errors import CalibrationError, PacelineError
from simulator.scenario import Scenario

pytestmark = pytest.mark.slow

LARGEST = 2_000
"""Worker-steps that are simulated; a larger scenario is validated only."""

Table = dict[str, Any]
WORKLOAD: Table = {
    "schema_version": 1,
    "name": "plain",
    "precision": "float32",
    "batch_per_replica": 8,
    "forward": {"base": "1 ms", "per_sample_s": 1e-4},
    "backward": {"base_s": 2e-3, "per_sample": "200 us"},
    "apply": "500 us",
    "jitter": {"kind": "gamma", "shape": 20.0},
    "run_to_run_cv": 0.01,
    "server": {"base": "20 us", "per_byte_s": 1e-10},
    "variables": [
        {"name": "table", "size": "1 MB", "creation_index": 1, "ready": 0.25, "sparse_bytes_per_sample": 400.0},
        {"name": "kernel", "size_bytes": 4e5, "creation_index": 0, "ready": 1.0},
    ],
    "calibrated": {"batch": [8, 64], "tensor_bytes": [1024.0, 1e6], "workers": [1, 1], "servers": [0, 0], "device": "CPU"},
    "uncertainty": {"parameters": ["forward.base_s", "backward.per_sample_s"], "draws": [[1e-3, 2e-4], [1.1e-3, 1.9e-4]]},
    "fit": {"relative_residual": 0.02, "laws": [{"kind": "gamma", "bic": -5.0}], "intervals_90": {"forward.base_s": [9e-4, 1.2e-3]}},
    "provenance": {"source": "made up"},
}
CLUSTER: Table = {
    "schema_version": 1,
    "name": "lab",
    "basis": "assumed",
    "nodes": 4,
    "devices_per_node": 2,
    "replicas_per_device": 1,
    "node_speed": [1.0, 0.5],
    "intra_node": {"bandwidth": "128 Gbit/s", "latency": "5 us"},
    "inter_node": {"bandwidth_bytes_per_s": 1e9, "latency_s": 2e-5},
    "calibrated": {"message_bytes": [1024.0, 1e7], "nodes": [2, 2]},
}
STRATEGIES: tuple[Table, ...] = (
    {"kind": "single"},
    {"kind": "mirrored", "replicas": 2, "bucket_size": "1 MiB"},
    {"kind": "multi-worker-mirrored", "workers": 2, "replicas_per_worker": 1},
    {"kind": "parameter-server", "mode": "async", "workers": 2, "servers": 2, "variable_placement": "greedy"},
    {
        "kind": "parameter-server",
        "mode": "sync",
        "workers": 2,
        "servers": 1,
        "server_placement": "colocated",
    },
)
RUN: Table = {"steps": 3, "warmup_steps": 1, "start": "staggered", "start_spread": "1 ms", "seed": 5, "replications": 2}


def scenario_table(strategy: Table) -> Table:
    how = {"mirrored": {"detail": "messages"}, "parameter-server": {"grouping": "per-server"}}.get(strategy["kind"], {})
    return {"workload": WORKLOAD, "cluster": CLUSTER, "strategy": strategy, "run": {**RUN, **how}}


@st.composite
def mutated(draw: st.DrawFn, valid: Table) -> Table:
    """A valid table with one to three things deleted, renamed, doubled, swapped or replaced."""
    return damage.mutated(valid, lambda options: draw(st.sampled_from(options)))  # type: ignore[no-any-return]


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid file with bytes flipped, put in, taken out, lines doubled, or the end missing."""
    return damage.damaged(valid, lambda options: draw(st.sampled_from(options)))


def kept(what: Callable[[], Any], kind: type[PacelineError] = PacelineError, code: int = 2) -> Any:
    """What a call gives; None where it refuses as it should."""
    try:
        return what()
    except kind as error:
        told = error
    assert told.exit_code == code, repr(told)
    assert str(told)
    return None


def run(scenario: Scenario | None) -> None:
    if scenario is None:
        return
    assert scenario.hash
    assert Scenario.model_validate_json(scenario.model_dump_json()) == scenario
    effort = (
        scenario.replicas * scenario.run.steps * scenario.run.replications * len(scenario.workload.variables) * max(scenario.servers, 1)
    )
    if effort <= LARGEST and scenario.nodes_needed <= 100:
        result = kept(lambda: simulate(scenario), code=1)
        assert result is None or json.loads(result.to_json())["replicas"] == scenario.replicas


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations")


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy["kind"] + strategy.get("mode", ""))
def test_the_originals_are_valid(strategy: Table, folder: Path) -> None:
    table = scenario_table(strategy)
    assert simulate(scenario_from_table(table, "s.toml")).events > 0
    file = folder / "valid.toml"
    file.write_text(as_file(table))
    assert tomllib.loads(file.read_text()) == table
    assert load_scenario(file).hash == scenario_from_table(table, "s.toml").hash


@examples(150)
@given(table=st.sampled_from(STRATEGIES).flatmap(lambda strategy: mutated(scenario_table(strategy))))
def test_scenario_tables(table: Table) -> None:
    run(kept(lambda: scenario_from_table(table, "s.toml")))


@examples(100)
@given(table=st.sampled_from(STRATEGIES).flatmap(lambda strategy: mutated(scenario_table(strategy))))
def test_scenario_files(table: Table, folder: Path) -> None:
    file = folder / "scenario.toml"
    file.write_text(as_file(table), encoding="utf-8", errors="surrogatepass")
    run(kept(lambda: load_scenario(file)))


@examples(100)
@given(content=st.sampled_from(STRATEGIES).flatmap(lambda strategy: damaged(as_file(scenario_table(strategy)).encode())))
def test_scenario_bytes(content: bytes, folder: Path) -> None:
    file = folder / "scenario.toml"
    file.write_bytes(content)
    run(kept(lambda: load_scenario(file)))


@examples(60)
@given(table=mutated(WORKLOAD), content=damaged(as_file(WORKLOAD).encode()))
def test_workload_files(table: Table, content: bytes, folder: Path) -> None:
    file = folder / "workload.toml"
    for written in (as_file(table).encode("utf-8", "surrogatepass"), content):
        file.write_bytes(written)
        kept(lambda: load_workload(file))


@examples(40)
@given(table=mutated(CLUSTER), content=damaged(as_file(CLUSTER).encode()))
def test_cluster_files(table: Table, content: bytes, folder: Path) -> None:
    file = folder / "cluster.toml"
    for written in (as_file(table).encode("utf-8", "surrogatepass"), content):
        file.write_bytes(written)
        kept(lambda: load_cluster(file))


@cache
def results() -> list[Table]:
    return [json.loads(simulate(scenario_from_table(scenario_table(strategy), "s.toml")).to_json()) for strategy in STRATEGIES[1:4]]


def _lines(rows: list[Table]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@examples(40)
@given(row=st.deferred(lambda: mutated(results()[2])), content=st.deferred(lambda: damaged(_lines(results()))))
def test_results_files(row: Table, content: bytes, folder: Path) -> None:
    file = folder / "results.ndjson"
    for written in (_lines([results()[0], row]), content):
        file.write_bytes(written)
        held = kept(lambda: read_results(file))
        assert held is None or held.results


MEASURED = [record for record in step_records(Truth(rounds=3, steps_a_round=2), gamma_of(0.1)) if record.get("index", 0) < 3]


@st.composite
def measured(draw: st.DrawFn) -> bytes:
    rows = list(MEASURED)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(rows) - 1))
        deed = draw(st.sampled_from(("change", "change", "delete", "double", "move")))
        if deed == "change":
            rows[at] = draw(mutated(rows[at]))
        elif deed == "double":
            rows.insert(at, rows[at])
        else:
            row = rows.pop(at)
            if deed == "move":
                rows.insert(draw(st.integers(0, len(rows))), row)
    return _lines(rows)


@examples(40)
@given(rows=measured(), content=damaged(_lines(MEASURED)))
def test_measurement_files(rows: bytes, content: bytes, folder: Path) -> None:
    # a damaged file is bad input, exit code 2; measurements that cannot be fitted are a failed run
    file = folder / "measured.ndjson"
    for written in (rows, content):
        file.write_bytes(written)
        workload = kept(lambda: kept(lambda: fit_workload(file, "fitted"), MeasurementsError, code=2), CalibrationError, code=1)
        assert workload is None or workload.name == "fitted"
