"""Every command does what its help says: data on stdout, chatter on stderr, the same bytes each time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.command_line import Answer
from syrupy.assertion import SnapshotAssertion
from typer.main import get_command

import paceline as package
from paceline.cli.app import app
from simulator.results.results import Result

ROOT = Path(__file__).parents[2]
COMMANDS = ["demo", "quickstart", "init", "calibrate", "calibrate-input", "calibrate-link", "calibrate-server", "memory", "simulate",
            "sweep", "report", "schema", "models list", "models show", "validate", "testbed run", "testbed show", "testbed fit",
            "testbed predict"]  # fmt: skip
Runner = Callable[..., Answer]


# --- help -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_an_example(paceline: Runner, command: str) -> None:
    answer = paceline(*command.split(), "--help")
    assert answer.code == 0
    assert answer.stderr == ""
    assert f"$ paceline {command} " in " ".join(answer.stdout.split()) + " "


def _every_command() -> dict[str, Any]:
    every: dict[str, Any] = {"": get_command(app)}
    every |= every[""].commands
    return every | {f"{name} {inner}": its for name, one in every.items() if name for inner, its in getattr(one, "commands", {}).items()}


@pytest.mark.parametrize("name", _every_command())
def test_help_is_short_and_help_all_has_the_rest(name: str, paceline: Runner) -> None:
    command = _every_command()[name]
    brief = paceline(*name.split(), "--help").stdout
    assert len(brief.splitlines()) <= 45
    assert max(map(len, brief.splitlines())) <= 80
    assert brief.replace("\n", "").isprintable()
    options = {option: each for each in command.params for option in each.opts if option.startswith("--") and not each.hidden}
    assert all(each.help for each in options.values())
    listed = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", brief, re.MULTILINE)) - {"--help"}
    assert listed <= {*options}
    if "--help-all" in options:
        assert brief.splitlines()[-1].endswith(f"paceline {name} --help-all")
        everything = paceline(*name.split(), "--help-all")
        assert everything.code == 0
        assert set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", everything.stdout, re.MULTILINE)) == {*options, "--help"}
        assert listed < {*options}
        for names in command._function.calls.common.values():
            assert {*names} <= {each.name for each in command.params}
    else:
        assert listed == {*options}


def test_no_example_needs_a_clone() -> None:
    every = [*_every_command().values()]
    examples = [" ".join(found.split()) for its in every for found in re.findall(r"`(paceline .*?)`", its.help or "", re.DOTALL)]
    assert len(examples) > len(COMMANDS)
    assert [example for example in examples if "models/" in example] == []


def test_the_first_help_names_every_command(paceline: Runner) -> None:
    answer = paceline("--help")
    assert answer.code == 0
    assert all(command.split()[0] in answer.stdout for command in COMMANDS)
    assert paceline("-h") == answer
    bare = paceline()
    assert (bare.code, bare.stdout.strip(), bare.stderr) == (2, answer.stdout.strip(), "")


def test_version(paceline: Runner) -> None:
    assert paceline("--version") == Answer(0, f"paceline {package.__version__}\n", "")


HEAVY = ("tensorflow", "keras", "scipy", "plotly", "pandas", "joblib", "jinja2", "tomlkit")


def _imported(*code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running code."""
    program = "\n".join([*code, "print('\\n'.join({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines())


NEEDLESS = (*HEAVY, "numpy", "simpy", "pydantic", "pandas", "calibrate")


def _started(*arguments: str, **environment: str) -> set[str]:
    """Modules that are loaded after the program has answered."""
    program = f"import sys; sys.argv = ['paceline', *{arguments!r}]; from paceline.cli.app import main"
    ending = "import atexit; atexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr))"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{ending}\nmain()"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.stdout
    return set(done.stderr.splitlines())


@pytest.mark.parametrize("arguments", [("--help",), *(pytest.param(words, marks=pytest.mark.long) for words in (("--version",), ()))])
def test_help_imports_nothing_that_simulates(arguments: tuple[str, ...]) -> None:
    loaded = _started(*arguments)
    assert "typer" in loaded
    assert not loaded & {*NEEDLESS}
    assert {name for name in loaded if name.startswith("simulator")} == {"simulator", "simulator.base", "simulator.base.errors"}
    assert "paceline.cli.commands.simulating" in loaded
    assert not loaded & {"paceline.api", "paceline.cli.terminal"}


def test_completion_imports_nothing_that_simulates() -> None:
    asked = {"_PACELINE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "paceline simulate ring --set strategy.kind="}
    loaded = _started(**asked)
    assert not loaded & {*NEEDLESS, "rich"}
    assert {name for name in loaded if name.startswith("simulator")} == {
        "simulator",
        "simulator.base",
        "simulator.base.errors",
        "simulator.base.catalog",
    }


def test_the_simulator_imports_nothing_heavy_that_it_may_not_need() -> None:
    assert not _imported("import sys", "import simulator") & {*NEEDLESS, "typer", "rich"}


def test_a_run_imports_what_it_uses() -> None:
    loaded = _started("simulate", "ring")
    assert {"numpy", "pydantic", "rich.console", "simulator.engine.production.at_once"} <= loaded
    assert not loaded & {*HEAVY, "calibrate", "concurrent", "multiprocessing", "numba", "rich.progress", "simpy", "yaml"}
    production = tuple(f"engine.production.{name}" for name in ("compiled", "machine", "state", "warming"))
    beside = (
        *production,
        "checks",
        "engine.textbook",
        "engine.trial",
        "job.outcome",
        "observing.chrome_trace",
        "program.printing",
    )
    front = ("diagnosing", "learning", "planning", "reporting", "serving", "sweeping", "watching")
    rooms = tuple([f"simulator.{room}" for room in beside] + [f"paceline.{room}" for room in front])
    assert [name for name in loaded if name.startswith(rooms)] == []


def test_schemas_are_built_where_something_is_read() -> None:
    code = "from simulator.scenario import Job, Scenario; from simulator import load_scenario"
    built = "print(*(spec.__pydantic_complete__ for spec in (Job, Scenario)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {built}; load_scenario('ring'); {built}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False False", "False True"]
    loaded = _imported("import sys", "import simulator", "simulator.simulate")
    assert {"numpy", "pydantic"} <= loaded
    assert not loaded & {*HEAVY, "typer", "rich"}


def test_the_face_of_the_package_imports_nothing() -> None:
    assert not _imported("import sys", "import paceline") & {*HEAVY, "numpy", "pydantic", "simpy", "typer", "rich"}


# --- simulate ---------------------------------------------------------------------------

FIELDS = {
    "schema_version": int,
    "scenario": dict,
    "scenario_hash": str,
    "seed": int,
    "monte_carlo_error": float,
    "warnings": list,
    "events": int,
    "checksum": str,
}
GROUPS = {
    "speedup": {"mean", "low", "high"},
    "scaling_efficiency": {"mean", "low", "high"},
    "placement": {"nodes", "worker_nodes", "server_nodes", "replicas_per_node", "devices_per_node", "text"},
    "throughput_samples_per_s": {"mean", "low", "high"},
    "updates_per_s": {"mean", "low", "high"},
    "step_time_s": {"mean", "p50", "p95", "p99"},
    "staleness": {"mean", "p50", "p95", "p99", "max", "histogram"},
    "breakdown_s": {"input", "compute", "exposed_communication", "waiting", "apply"},
    "utilisation": {"devices", "links", "servers"},
    "bottleneck": {"name", "group", "text"},
}


def test_simulate_json_is_a_whole_result(paceline: Runner) -> None:
    answer = paceline("simulate", "s.toml", "--json")
    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout.count("\n") == 1
    data = json.loads(answer.stdout)
    for name, kind in FIELDS.items():
        assert isinstance(data[name], kind), name
    for name, keys in GROUPS.items():
        assert keys <= data[name].keys(), name
    assert all({"code", "path", "value", "range"} <= warning.keys() for warning in data["warnings"])
    assert {"no-uncertainty", "assumed-network"} <= {warning["code"] for warning in data["warnings"]}
    result = Result.model_validate_json(answer.stdout)
    assert result.to_json() + "\n" == answer.stdout
    assert result.scenario.hash == result.scenario_hash


def test_simulate_says_it_to_a_person_in_80_columns(paceline: Runner, snapshot: SnapshotAssertion) -> None:
    answer = paceline("simulate", "s.toml")
    assert (answer.code, answer.stderr) == (0, "")
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert "\x1b" not in answer.stdout
    assert answer.stdout == snapshot


def test_a_result_begins_with_the_answer_and_counts_what_was_assumed(paceline: Runner) -> None:
    short, details = paceline("simulate", "async-ps").stdout, paceline("simulate", "async-ps", "--details").stdout
    places = [
        short.index(text) for text in ("90% interval", "\nLimit ", "\nConfidence ", "\nWatch out ", "\nNext ", "\nDetails: --details")
    ]
    assert places == sorted(places)
    assert len(short.splitlines()) <= 25
    assert len(short.splitlines()[0].split()) <= 20
    assert "assumed     5 values" in details
    assert "strategy.pull_order" not in details
    assert "assumed  strategy.pull_order = random: " in paceline("simulate", "async-ps", "--assumptions").stdout


def test_a_result_says_where_it_sits_and_how_sure_its_efficiency_is(paceline: Runner) -> None:
    """Eight workers on a machine of eight devices are one node: said, not left to be guessed."""
    settings = ("strategy.workers=8", "run.steps=20", "run.replications=19")
    options = [word for setting in settings for word in ("--set", setting)]
    for devices, text in ((8, "8 replicas on 1 node with 8 devices"), (2, "8 replicas on 4 nodes with 2 devices each")):
        answer = paceline("simulate", "ring", *options, "--set", f"cluster.devices_per_node={devices}", "--details")
        assert answer.code == 0
        assert max(map(len, answer.stdout.splitlines())) <= 80
        (line,) = [line for line in answer.stdout.splitlines() if line.startswith("placement")]
        assert text in line
        told = re.search(r"efficiency +([\d.]+)% \(90% of runs: ([\d.]+)% to ([\d.]+)%\), ([\d.]+) times", answer.stdout)
        assert told is not None
        mean, low, high, speedup = map(float, told.groups())
        assert low < mean < high
        assert speedup == pytest.approx(8 * mean / 100, rel=0.01)


def _result(answer: Answer) -> dict[str, Any]:
    assert answer.code == 0, answer.stderr
    return json.loads(answer.stdout)


def test_set_reaches_every_kind_of_key(paceline: Runner) -> None:
    settings = ["strategy.mode=sync", "strategy.workers=3", "cluster.inter_node.bandwidth=10 Gbit/s", "cluster.inter_node.latency_s=1e-5"]
    settings += ["run.start=random-phase", 'workload.jitter={kind="gamma", shape=4.0}', "cluster.node_speed=[1, 0.5]", "run.seed = 7"]
    scenario = _result(paceline("simulate", "s.toml", "--json", *[word for setting in settings for word in ("--set", setting)]))["scenario"]
    assert (scenario["strategy"]["mode"], scenario["strategy"]["workers"]) == ("sync", 3)
    assert scenario["cluster"]["inter_node"] == {"bandwidth_bytes_per_s": 1.25e9, "latency_s": 1e-5}
    assert (scenario["run"]["start"], scenario["run"]["seed"]) == ("random-phase", 7)
    assert scenario["workload"]["jitter"] == {"kind": "gamma", "shape": 4.0}
    assert scenario["cluster"]["node_speed"] == [1, 0.5]


def test_the_same_command_gives_the_same_result_and_another_seed_another(paceline: Runner) -> None:
    texts = [paceline("simulate", "s.toml", "--json", "--set", f"run.seed={seed}").stdout for seed in (1, 1, 2)]
    assert texts[0] == texts[1]
    first, _, other = map(json.loads, texts)
    assert first["throughput_samples_per_s"] != other["throughput_samples_per_s"]


def test_processes_with_other_hash_seeds_agree(process: Runner) -> None:
    answers = [process("simulate", "s.toml", "--json", env={**os.environ, "PYTHONHASHSEED": seed}) for seed in ("0", "4242")]
    assert answers[0].code == 0
    assert answers[0].stdout == answers[1].stdout


def test_a_trace_is_one_that_chrome_reads(folder: Path, paceline: Runner) -> None:
    answer = paceline("simulate", "s.toml", "--json", "--trace", "new/t.json")
    assert answer.code == 0
    assert answer.stderr.startswith("wrote new/t.json")
    json.loads(answer.stdout)
    trace = json.loads((folder / "new/t.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) > 10
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert event["ph"] in {"X", "M", "i", "C", "s", "f"}
    for span in spans:
        assert isinstance(span["tid"], int)
        assert span["ts"] >= 0
        assert span["dur"] >= 0
    named = {event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]}
    assert named


def test_a_trace_changes_no_result(paceline: Runner) -> None:
    assert _result(paceline("simulate", "s.toml", "--json", "--trace", "t.json")) == _result(paceline("simulate", "s.toml", "--json"))


# --- sweep and report -------------------------------------------------------------------

SWEEP = ("sweep", "s.toml", "--over", "strategy.workers=1,2,3", "--over", "strategy.mode=sync,async")


def test_a_sweep_is_the_same_file_with_any_number_of_jobs(folder: Path, paceline: Runner, snapshot: SnapshotAssertion) -> None:
    for jobs in ("1", "2"):
        answer = paceline(*SWEEP, "--replications", "3", "--jobs", jobs, "--out", f"{jobs}.ndjson")
        assert answer.code == 0
        assert answer.stderr.startswith(f"wrote {jobs}.ndjson (6 results); ")
        assert answer.stderr.endswith(f" paceline report {jobs}.ndjson\n")
        assert max(map(len, answer.stdout.splitlines())) <= 80
    assert answer.stdout == snapshot
    assert (folder / "1.ndjson").read_bytes() == (folder / "2.ndjson").read_bytes()
    results = [Result.model_validate_json(line) for line in (folder / "1.ndjson").read_text().splitlines()]
    grid = [(result.replicas, result.scenario.strategy.mode) for result in results]  # type: ignore[union-attr]
    assert grid == [(workers, mode) for workers in (1, 2, 3) for mode in ("sync", "async")]
    assert all(result.scenario.run.replications == 3 for result in results)


def test_a_sweep_prints_the_lines_it_writes(folder: Path, paceline: Runner) -> None:
    answer = paceline(*SWEEP, "--jobs", "1", "--json", "--out", "r.ndjson")
    assert answer.stdout == (folder / "r.ndjson").read_text()
    alone = paceline("simulate", "s.toml", "--json", "--set", "strategy.workers=3", "--set", "strategy.mode=sync")
    assert answer.stdout.splitlines(keepends=True)[4] == alone.stdout


def test_a_sweep_is_written_under_the_scenarios_name(folder: Path, paceline: Runner) -> None:
    answer = paceline("sweep", "s.toml", "--over", "run.seed=1,2", "--jobs", "1")
    assert answer.code == 0
    assert answer.stderr.startswith("wrote s.ndjson (2 results); ")
    assert len((folder / "s.ndjson").read_text().splitlines()) == 2
    assert paceline("sweep", "models/scenarios/../../ring", "--over", "run.seed=1", "--jobs", "1").code == 2
    assert paceline("sweep", "ring", "--over", "run.seed=1", "--set", "run.steps=10", "--jobs", "1").code == 0
    assert (folder / "ring.ndjson").exists()


def test_a_finished_sweep_is_not_simulated_again(folder: Path, paceline: Runner) -> None:
    first = paceline(*SWEEP, "--jobs", "1", "--out", "r.ndjson")
    before = (folder / "r.ndjson").stat()
    assert paceline(*SWEEP, "--jobs", "1", "--out", "r.ndjson") == first
    assert (folder / "r.ndjson").stat().st_mtime_ns == before.st_mtime_ns


def test_sweep_to_report(folder: Path, paceline: Runner) -> None:
    assert paceline(*SWEEP, "--jobs", "1", "--out", "r.ndjson").code == 0
    answer = paceline("report", "r.ndjson", "-o", "page.html", "--json")
    assert answer.code == 0
    assert json.loads(answer.stdout)["results"] == 6
    page = (folder / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "plain" in page


# --- models and schema ------------------------------------------------------------------


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_models_are_listed_and_shown(folder: Path, paceline: Runner, every: int) -> None:
    rows = json.loads(paceline("models", "list", "--json").stdout)
    assert {"ethernet-25g", "p3.16xlarge", "t4"} <= {row["name"] for row in rows}
    table = paceline("models", "list").stdout
    for number, row in enumerate(rows):
        assert row["name"] in table
        assert not row["description"].startswith("cannot be used")
        if row["kind"] == "scenario" or number % every:  # `paceline simulate` takes its name
            continue
        shown = paceline("models", "show", row["name"])
        name = row["device"] if row["kind"] == "device" else row["name"]
        assert tomllib.loads(shown.stdout)["name"] == name
        full = json.loads(paceline("models", "show", row["name"], "--json").stdout)
        assert full["name"] == name
    examples = Path(package.__file__).parents[1] / "models" / "scenarios"
    assert {row["name"] for row in rows if row["kind"] == "scenario"} == {file.stem for file in examples.glob("*.toml")}


def test_the_users_own_models_come_first(folder: Path, paceline: Runner) -> None:
    (folder / "models" / "clusters").mkdir(parents=True)
    (folder / "models" / "clusters" / "ethernet-25g.toml").write_text('name = "mine"\ninter_node = {bandwidth = "1 GB/s"}\n')
    (folder / "models" / "clusters" / "broken.toml").write_text("name = \n")
    assert json.loads(paceline("models", "show", "ethernet-25g", "--json").stdout)["name"] == "mine"
    rows = {row["name"]: row["description"] for row in json.loads(paceline("models", "list", "--json").stdout)}
    assert rows["broken"].startswith("cannot be used: models/clusters/broken.toml: ")


def _validator(paceline: Runner, name: str) -> jsonschema.Draft202012Validator:
    answer = paceline("schema", name)
    assert (answer.code, answer.stderr) == (0, "")
    schema = json.loads(answer.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_file_that_comes_along_obeys_its_schema(paceline: Runner) -> None:
    count = 0
    for kind in ("workload", "cluster", "device", "scenario"):
        validator = _validator(paceline, kind)
        for file in sorted((ROOT / "models" / f"{kind}s").glob("*.toml")):
            validator.validate(tomllib.loads(file.read_text()))
            count += 1
    assert count >= 5


def test_schema_and_program_agree_on_what_is_wrong(folder: Path, paceline: Runner) -> None:
    validator = _validator(paceline, "scenario")
    text = (folder / "s.toml").read_text()
    assert validator.is_valid(tomllib.loads(text))
    for old, new in (("workers = 2", "wrokers = 2"), ("workers = 2", "workers = 0"), ("workers = 2", 'workers = "2"'), ('"20 us"', "20")):
        assert not validator.is_valid(tomllib.loads(text.replace(old, new))), new


def test_a_result_obeys_its_schema(paceline: Runner) -> None:
    _validator(paceline, "result").validate(json.loads(paceline("simulate", "s.toml", "--json").stdout))


def test_all_schemas_at_once(paceline: Runner) -> None:
    schemas = json.loads(paceline("schema").stdout)
    assert set(schemas) == {"scenario", "workload", "cluster", "device", "input", "faults", "result", "testbed-setting"}
    assert all(json.loads(paceline("schema", name).stdout) == schema for name, schema in schemas.items())
