"""Every way of training through the real command line: shown, written, read again, swept and reported."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.command_line import Answer, refused
from support.modes import LOAD, MODES
from support.scenarios import scenario_table

from paceline.reporting.reproduce import scenario_toml
from simulator import scenario_from_table, simulate
from simulator.results.results import Result

Runner = Callable[..., Answer]
FEW = {"steps": 12, "warmup_steps": 2, "replications": 2}


def table_of(mode: str) -> dict[str, Any]:
    strategy, cluster, run = MODES[mode]
    return scenario_table(strategy=strategy, cluster=cluster, workload=LOAD, run={**FEW, **run})


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {mode: simulate(scenario_from_table(table_of(mode), mode)) for mode in MODES}


def shown(paceline: Runner, *settings: str) -> dict[str, str]:
    """What ``paceline simulate`` tells a person, by heading."""
    answer = paceline("simulate", "s.toml", *(word for setting in settings for word in ("--set", setting)), "--details")
    assert (answer.code, answer.stderr) == (0, "")
    assert max(map(len, answer.stdout.splitlines())) <= 80
    rows: dict[str, str] = {"title": answer.stdout.partition(" on ")[0]}
    heading = ""
    for line in answer.stdout.splitlines()[1:]:
        found = re.match(r"(\S+(?: \S+)*)  +(\S.*)", line.rstrip())
        if found:
            heading = found[1]
            rows[heading] = found[2]
        elif heading and line.startswith("   ") and line.strip():
            rows[heading] += " " + line.strip()
    return rows


PS = "strategy={kind='parameter-server',mode='async',workers=4}"
SYNC = "strategy={kind='parameter-server',mode='sync',workers=4}"
RING = "strategy={kind='multi-worker-mirrored',workers=4}"
SHAKY = "workload.jitter={kind='exponential'}"
SOME = "run.steps=60"


def test_hidden_communication_stands_beside_the_exposed(paceline: Runner) -> None:
    rows = shown(paceline, RING, "strategy.bucket_size='1 kB'", SOME)
    assert re.search(r"exposed communication [\d.]+%.*, hidden communication [\d.]+ [mµ]s", rows["of a step"])
    assert "staleness" not in rows
    assert "hidden" not in shown(paceline, RING, SOME)["of a step"]


def test_ssp_tells_its_bound(paceline: Runner) -> None:
    rows = shown(paceline, PS, "strategy.mode=ssp", "strategy.bound=2", SOME)
    assert rows["title"] == "SSP PS (bound 2), 1 server"
    assert rows["staleness"].endswith("at most 15 under bound 2")


def test_several_servers_tell_staleness_and_mixed_reads(paceline: Runner) -> None:
    rows = shown(paceline, PS, SHAKY, SOME, "strategy.servers=2")
    assert re.fullmatch(r"staleness [\d.]+, [\d.]+; <?[\d.]+% of reads mix versions, by up to \d+", rows["servers"])
    cut = "strategy.partitioner={kind='fixed-shards',shards=6}"
    many = shown(paceline, PS, SHAKY, SOME, "strategy.servers=6", cut)
    assert re.match(r"staleness [\d.]+ to [\d.]+; ", many["servers"])
    assert "servers" not in shown(paceline, PS, SHAKY, SOME)


def test_backup_workers_tell_what_was_dropped(paceline: Runner) -> None:
    rows = shown(paceline, SYNC, SHAKY, SOME, "strategy.backup_workers=1")
    assert rows["title"] == "Sync PS, 1 server, 1 backup"
    assert re.fullmatch(r"[\d.]+% of gradients; [\d,.]+ samples/s wasted", rows["dropped"])
    assert "dropped" not in shown(paceline, SYNC, SHAKY, SOME)


def test_phases_that_mix_and_that_do_not(paceline: Runner) -> None:
    assert re.fullmatch(r"mixed after [\d.]+ m?s(, in \d+% of the runs)?", shown(paceline, PS, SHAKY, "run.steps=300")["phases"])
    alike = "workload.jitter={kind='constant'}", "workload.run_to_run_cv=0", "run.start=together", "strategy.pull_order=forward"
    alike += ("cluster.transport.software=given",)
    locked = shown(paceline, PS, *alike, SOME)
    assert re.fullmatch(r"not mixed by the end \(order [\d.]+; random phases: mostly below [\d.]+\)", locked["phases"])
    assert "phases" not in shown(paceline, SYNC, SOME)


def test_short_runs_tell_their_range_where_the_interval_is_another(paceline: Runner) -> None:
    assert re.fullmatch(r"[\d,]+ to [\d,]+ samples/s over 2 runs", shown(paceline, PS)["runs"])
    assert "runs" not in shown(paceline, PS, "run.replications=19")
    assert "runs" not in shown(paceline, PS, "run.steps=1000")


def test_what_was_chosen_automatically(paceline: Runner) -> None:
    rows = shown(paceline, RING, "strategy.algorithm=auto", "strategy.protocol=auto", "strategy.bucket_size='500 B'")
    assert rows["title"] == "Auto all-reduce"
    assert re.fullmatch(r"[a-z-]+ \([a-z0-9]+\) for 1,000 B, [a-z-]+ \([a-z0-9]+\) for 977 KiB", rows["chosen"])
    assert "chosen" not in shown(paceline, RING)


def test_titles_name_the_algorithm(paceline: Runner) -> None:
    assert shown(paceline, RING)["title"] == "Ring all-reduce"
    assert shown(paceline, RING, "strategy.algorithm=halving-doubling")["title"] == "Halving-doubling all-reduce"
    assert shown(paceline, RING, "strategy.sync_every=2")["title"] == "Ring all-reduce, every 2 steps"
    assert shown(paceline, "strategy={kind='mirrored'}", "cluster.devices_per_node=2")["title"] == "Ring all-reduce in one node"
    assert shown(paceline, "strategy={kind='single'}")["title"] == "Single device"


# --- written and read again ----------------------------------------------------------------


@pytest.fixture
def validators(paceline: Runner) -> dict[str, jsonschema.Draft202012Validator]:
    schemas = json.loads(paceline("schema").stdout)
    return {name: jsonschema.Draft202012Validator(schema) for name, schema in schemas.items()}


def test_scenarios_and_results_obey_their_schemas(results: dict[str, Result], validators: dict[str, Any]) -> None:
    for mode, result in results.items():
        validators["scenario"].validate(table_of(mode))
        validators["result"].validate(json.loads(result.to_json()))


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ("strategy", {"kind": "multi-worker-mirrored", "workers": 4, "backup_workers": 1}),
        ("strategy", {"kind": "multi-worker-mirrored", "algorithm": "nccl"}),
        ("strategy", {"kind": "parameter-server", "mode": "sync", "coordinator": {"dispatch": 1}}),
        ("cluster", {"fabric": {"nodes_per_leaf": 0}}),
        ("cluster", {"transport": {"weight_sigma": 4}}),
        ("cluster", {"transport": {"cpu_per_byte_s": -1}}),
        ("cluster", {"node_classes": [{"name": "a"}]}),
        ("cluster", {"host_link": {"latency": "1 us"}}),
        ("workload", {"input_bytes_per_sample": 0}),
        ("run", {"sharing": "own"}),
    ],
)
def test_the_schema_refuses_what_the_program_refuses(section: str, wrong: dict[str, Any], validators: dict[str, Any]) -> None:
    assert not validators["scenario"].is_valid(scenario_table(**{section: wrong}))


def test_every_key_that_a_person_sets_is_described(paceline: Runner) -> None:
    definitions = json.loads(paceline("schema", "scenario").stdout)["$defs"]
    of_strategies = ("ParameterServer", "MultiWorkerMirrored", "Mirrored", "Partitioner", "Coordinator")
    of_clusters = ("Fabric", "Transport", "NodeClass", "Slowdown", "Protocol", "Link")
    for name in (*of_strategies, *of_clusters, "Run", "ServerCost", "Affine"):
        for key, said in definitions[name]["properties"].items():
            assert key == "kind" or "description" in said or "$ref" in json.dumps(said), f"{name}.{key}"


def test_results_come_back_as_written(results: dict[str, Result]) -> None:
    for result in results.values():
        again = Result.model_validate_json(result.to_json())
        assert again == result
        assert again.scenario.hash == result.scenario_hash


def test_a_report_can_be_reproduced_from_the_scenario_that_it_shows(results: dict[str, Result]) -> None:
    for mode, result in results.items():
        assert scenario_from_table(tomllib.loads(scenario_toml(result.scenario)), mode) == result.scenario


@pytest.mark.long
def test_a_report_of_every_way_of_training(results: dict[str, Result], folder: Path, paceline: Runner) -> None:
    (folder / "r.ndjson").write_text("".join(f"{result.to_json()}\n" for result in results.values()))
    answer = paceline("report", "r.ndjson", "-o", "page.html", "--json")
    assert answer.code == 0
    # two are simulated in another detail only, and so are the same scenario as others
    assert json.loads(answer.stdout)["results"] == len({result.scenario_hash for result in results.values()}) == len(results) - 2
    page = re.sub(r"<(script|style).*?</\1>", "", (folder / "page.html").read_text(), flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", page)
    for nonsense in ("NaN", "nan ", "None", "null", "undefined", "NodeClass("):
        assert nonsense not in text


@pytest.mark.parametrize(
    ("base", "axis", "names"),
    [
        (SYNC, "strategy.backup_workers=0,1,2", ["backup workers 0", "backup workers 1", "backup workers 2"]),
        (PS + " strategy.mode=ssp", "strategy.bound=0,3", ["bound 0", "bound 3"]),
        (PS + " cluster.fabric={nodes_per_leaf=2}", "cluster.fabric.oversubscription=1,4", ["oversubscription 1", "oversubscription 4"]),
        (PS, "cluster.node_classes=[],[{name='slow',nodes=1,speed=0.5}]", ["node classes none", "node classes slow"]),
        (RING, "strategy.algorithm=ring,auto", ["Ring all-reduce", "Auto all-reduce"]),
        (RING, "strategy.sync_every=1,2", ["sync every 1", "sync every 2"]),
        (PS, "strategy.pull_order=forward,random,together", ["pull order forward", "pull order random", "pull order together"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sweeps_over_new_keys(base: str, axis: str, names: list[str], folder: Path, paceline: Runner) -> None:
    settings = [word for setting in base.split(" ") for word in ("--set", setting)]
    answer = paceline("sweep", "s.toml", *settings, "--over", axis, "--jobs", "1", "--out", "r.ndjson")
    assert answer.code == 0, answer.stderr
    assert max(map(len, answer.stdout.splitlines())) <= 80
    text = " ".join(answer.stdout.split())
    for name in names:
        assert name in text
    assert len((folder / "r.ndjson").read_text().splitlines()) == len(names)


# --- scenarios by name -----------------------------------------------------------------------


def test_scenarios_that_come_along_run_by_name(paceline: Runner) -> None:
    answer = paceline("simulate", "ssp", "--set", "run.steps=4", "--set", "run.replications=2", "--json")
    assert json.loads(answer.stdout)["scenario"]["strategy"]["bound"] == 3
    assert paceline("sweep", "ring", "--set", "run.steps=4", "--over", "run.replications=2", "--jobs", "1", "--out", "r.ndjson").code == 0


def test_a_file_of_ones_own_comes_before_a_name(folder: Path, paceline: Runner) -> None:
    (folder / "ssp").write_text((folder / "s.toml").read_text())
    assert json.loads(paceline("simulate", "ssp", "--json").stdout)["scenario"]["workload"]["name"] == "plain"


def test_a_name_that_is_none_is_one_line(paceline: Runner) -> None:
    refused(paceline("simulate", "local-sdg"), "local-sdg: ", "local-sgd")
