"""What README and docs show is true: their scenarios load, their commands parse, their examples run, no registry's host is named."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel

import paceline
from paceline.cli.app import app
from paceline.cli.options import parse_axis, parse_setting
from paceline.sweeping import grid
from simulator import load_scenario, scenario_from_table, simulate
from simulator.invariants import LAWS
from simulator.observing.critical_path import critical_path, median_step
from simulator.observing.recording import Recording
from simulator.observing.step_bound import bound_of_step
from simulator.program.laws import PROGRAM_LAWS
from simulator.replication import replicate
from simulator.scenario import Scenario
from simulator.spec import keys_of, parts_of

ROOT = Path(__file__).parents[2]
INSIDE = ROOT / "docs" / "inside-a-run.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def toml_blocks() -> list[tuple[str, str]]:
    return [(page.name, block) for page in PAGES for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)]


def in_few_steps(table: dict[str, Any]) -> Scenario:
    """The scenario, as short as it may be."""
    strategy = table["strategy"]
    fills = strategy.get("pipeline", 1) - 1 if strategy.get("schedule") == "pipedream" else 0
    steps = max(2 + fills, strategy.get("sync_every", 1))
    run = {key: value for key, value in table.get("run", {}).items() if key not in ("job_steps", "warmup_steps")}
    return scenario_from_table({**table, "run": {**run, "steps": steps, "warmup_steps": fills, "replications": 2}}, "a document")


@pytest.mark.parametrize(("page", "block"), toml_blocks())
def test_scenarios_in_the_documents_load_and_run(page, block, monkeypatch):
    monkeypatch.chdir(ROOT)
    table = tomllib.loads(block)
    if {"workload", "strategy"} <= table.keys():
        scenario_from_table(table, page)
        assert simulate(in_few_steps(table)).throughput_samples_per_s.mean > 0


def test_there_is_an_example_for_each_way_of_training():
    found = [tomllib.loads(block) for page, block in toml_blocks() if page == "scenario.md"]
    keys = {key for table in found for section in table.values() for key in section}
    wanted = {
        "fabric",
        "transport",
        "node_classes",
        "backup_workers",
        "bound",
        "sync_every",
        "fusion_cycle",
        "partitioner",
        "device_is_host",
    }
    assert wanted | {"coordinator", "moved", "price"} <= keys


SCENARIOS = sorted((ROOT / "models" / "scenarios").glob("*.toml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_example_scenarios_run(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert load_scenario(path).ranks in (4, 8, 16, 32)
    assert load_scenario(path.stem) == load_scenario(path)
    assert simulate(in_few_steps(tomllib.loads(path.read_text()))).throughput_samples_per_s.mean > 0


def test_example_scenarios_say_how_to_run_them(monkeypatch):
    monkeypatch.chdir(ROOT)
    for path in SCENARIOS:
        text = path.read_text()
        assert f"paceline simulate models/scenarios/{path.name}" in text, path.name
        commands = [shlex.split(line, comments=True) for line in re.findall(r"^#   (paceline .*)", text, re.MULTILINE)]
        for words in commands:
            assert words[2] == f"models/scenarios/{path.name}"
            settings = [parse_setting(word) for option, word in pairwise(words) if option == "--set"]
            load_scenario(path, settings)
            axes = [parse_axis(word) for option, word in pairwise(words) if option == "--over"]
            assert grid(tomllib.loads(text), axes, settings)


_NOT_OF_SCENARIOS = {"schema_version", "computed", "description", "provenance", "fit", "calibrated", "uncertainty", "overridden"}


def keys_of_scenarios(table: type[BaseModel] = Scenario) -> set[str]:
    """Every key that a person may write into a scenario, under its short name."""
    found: set[str] = set()
    for name, field in table.model_fields.items():
        if name not in _NOT_OF_SCENARIOS:
            found.add(next(key for key in keys_of(table) if name in (key, f"{key}_s", f"{key}_bytes", f"{key}_bytes_per_s")))
            for part in parts_of(field.annotation):
                found |= keys_of_scenarios(part) if issubclass(part, BaseModel) else set()
    return found


def test_every_key_is_documented():
    pages = ("scenario", "computed-workloads", "ways-of-training", "compression", "training", "input", "job", "metrics", "moving")
    page = "\n".join((ROOT / "docs" / f"{name}.md").read_text() for name in pages)  # the first leads to the others
    code = re.findall(r"```toml\n(.*?)```", page, re.DOTALL) + re.findall(r"`([^`\n]+)`", page)
    documented = {word for part in code for word in re.findall(r"[a-z0-9_]+", part)}
    assert keys_of_scenarios() <= documented, keys_of_scenarios() - documented


def test_links_in_the_documents_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_no_registry_is_named():
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "*.txt", "*.toml", "*.md", "*.py", "*.ipynb", "Makefile", ".ci/run"],
        capture_output=True,
        text=True,
        check=True,
    )
    hosts = re.compile("|".join(["pypi" + r"\.org", "pythonhosted" + r"\.", "registry" + r"\.npmjs", "deb" + r"\.debian"]))
    assert tracked.stdout
    for name in filter(lambda name: (ROOT / name).exists(), tracked.stdout.split()):
        assert not hosts.search((ROOT / name).read_text(errors="replace")), name


@pytest.mark.parametrize("laws", [LAWS, PROGRAM_LAWS], ids=["runs", "programs"])
def test_every_law_is_named(laws):
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", INSIDE.read_text(), re.MULTILINE)
    summaries = [(law.__name__, (law.__doc__ or "").split("\n\n")[0].strip()) for law in laws]
    assert [row for row in rows if row[0] in dict(summaries)] == summaries


def test_what_a_command_says_is_quoted_to_the_letter(monkeypatch):
    monkeypatch.chdir(ROOT)
    scenario = load_scenario(ROOT / "models" / "scenarios" / "async-ps.toml")
    recording = Recording()
    replicate(scenario, 0, recording)
    warmup = scenario.run.warmup * scenario.replicas
    said = bound_of_step(critical_path(recording, median_step(recording.steps[warmup:])))
    assert f"  > {said}\n" in INSIDE.read_text()


def quoted_plans() -> list[tuple[str, str, str]]:
    """Each command line of a plan that a page shows, with what the page quotes of its answer."""
    shown = re.compile(r"^\$ (paceline plan [^\n]*)\n```\n+> ([^\n]+)$", re.MULTILINE)
    return [(page.name, *found) for page in PAGES for found in shown.findall(page.read_text())]


@pytest.mark.parametrize(("page", "line", "quote"), quoted_plans())
def test_pages_quote_what_their_plans_say(page, line, quote, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = shlex.split(line)
    options = dict(pairwise(words))
    clusters = {"clusters": options["--clusters"].split(",")} if "--clusters" in options else {}
    samples = {"samples": float(options["--samples"])} if "--samples" in options else {}
    found = paceline.plan(
        options["plan"],
        deadline=options["--deadline"],
        prices=options.get("--price"),
        workers=options.get("--workers"),
        jobs=1,
        **clusters,
        **samples,
    )
    assert " ".join(found.sentences).startswith(quote), page


def test_three_pages_quote_a_plan():
    assert [page for page, *_ in quoted_plans()] == ["README.md", "fit-a-large-model.md", "plan-a-whole-job.md"]


def test_constants_stand_in_the_documents_as_they_are_used():
    constants = {row["name"]: row for row in tomllib.loads((ROOT / "models" / "practice.toml").read_text())["constant"]}
    shown = {}
    for page in ("practice", "computed-workloads"):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        shown |= {name: values for name, *values in re.findall(r"^\| `(\w+)` \| ([\d.]+) \(([\d.]+) to ([\d.]+)\) \|", text, re.MULTILINE)}
    assert shown.keys() == constants.keys() - {"kernel_start_s"}  # which has a unit
    for name, values in shown.items():
        assert [float(value) for value in values] == [constants[name][key] for key in ("value", "low", "high")], name


def published_scores() -> dict[str, list[str]]:
    """The table of scores on published rows, by measure; the groups stand under "measure"."""
    page = (ROOT / "docs" / "fidelity-published.md").read_text()
    scores = page[page.index("### Scores") : page.index("### The largest errors")]
    return {cells[1].strip(): [cell.strip() for cell in cells[2:-1]] for line in scores.splitlines() if len(cells := line.split("|")) > 3}


def test_the_readme_has_the_errors_on_published_tables_as_they_were_printed():
    rows = published_scores()
    readme = (ROOT / "README.md").read_text()
    groups = {"sync PS": "synchronous parameter servers", "all-reduce": "all-reduce", "async PS": "asynchronous parameter servers"}
    for group, name in groups.items():
        column = rows["measure"].index(group)
        median = float(rows["median size of error"][column].removesuffix("%"))
        row = next(line for line in readme.splitlines() if line.startswith(f"| {name} | {rows['settings'][column]} |"))
        assert float(row.split("|")[3].strip().removesuffix("%")) == pytest.approx(median, abs=0.5)
    worst = dict(zip(rows["measure"], rows["worst error"], strict=True))
    assert (
        f"The worst rows are off by {worst['sync PS']} (synchronous servers), {worst['all-reduce']} (all-reduce), "
        f"{worst['async PS']} (asynchronous servers) and {worst['NCCL']} (NCCL)." in readme
    )
    moved = [worst[f"moved, {rule}"] for rule in ("published pair", "two rooflines", "one roofline")]
    assert f"The worst are off by {moved[0]}, {moved[1]} and {moved[2]}." in readme


def test_the_readme_has_the_errors_of_moving_as_they_were_printed():
    rows = published_scores()
    names = ("settings", "median size of error", "inside 90% interval", "interval width", "bandwidth", "peak")
    readme = (ROOT / "README.md").read_text()
    for group, rule in (
        ("moved, published pair", "a published pair"),
        ("moved, two rooflines", "the ratio of two rooflines"),
        ("moved, one roofline", "one roofline, from a processor"),
    ):
        column = rows["measure"].index(group)
        cells = [rows[name][column].replace("–", "-") for name in names]
        assert f"\n| {rule} | {' | '.join(cells)} |\n" in readme


# -- commands --------------------------------------------------------------------------


def commands() -> list[tuple[str, str]]:
    """Every command line that a document shows: in a console, in a shell script, in a code span."""
    found = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", "")  # a line that goes on
        blocks = "\n".join(re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL))
        found += [(page.name, line) for line in re.findall(r"^(?:\$ )?(paceline .*)$", blocks, re.MULTILINE)]
        found += [(page.name, span) for span in re.findall(r"`(paceline [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))]
    return list(dict.fromkeys(found))


def fault_of(line: str) -> str:
    """What the command line would refuse of a command before it does anything: an unknown command or option, a wrong value."""
    words = shlex.split(line, comments=True)[1:]
    command, context = typer.main.get_command(app), None
    while True:
        try:
            context = command.make_context(words[0] if words else "", list(words), parent=context)
        except Exception as error:  # typer's own copy of click has classes of its own
            told = type(error).__name__, str(error)
            # what a sentence leaves out is no fault; --help ends here as well
            return "" if told[0] in ("MissingParameter", "Exit", "NoArgsIsHelpError") else f"{told[0]}: {told[1]}"
        if not hasattr(command, "resolve_command"):
            return ""
        rest = [*context._protected_args, *context.args]
        if not rest:
            return ""
        try:
            _, command, words = command.resolve_command(context, rest)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_in_the_documents_parse(page, line, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert not fault_of(line), f"{page}: {line}"


def test_a_wrong_command_would_be_noticed():
    assert "nonsense" in fault_of("paceline nonsense")
    assert "--nonsense" in fault_of("paceline simulate ring --nonsense")
    assert len(commands()) > 20


# -- Python ----------------------------------------------------------------------------


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_readme_has_a_test_in_five_lines_that_passes(tmp_path):
    block = next(block for block in python_blocks(ROOT / "README.md") if "def test_" in block)
    assert len([line for line in block.splitlines() if line]) <= 5
    (tmp_path / "test_mine.py").write_text(block)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_readme_in_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    block = next(block for block in python_blocks(ROOT / "README.md") if "sweep" in block)
    exec(block, {})  # noqa: S102 - our own document
    assert "scaling_efficiency" in capsys.readouterr().out
    assert (tmp_path / "ring.html").stat().st_size > 1e6


def test_looking_inside_a_run_in_python_says_what_a_step_did(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(python_blocks(INSIDE)[0], {})  # noqa: S102 - our own document
    assert re.match(r"Step \d+ of worker \d+ took ", capsys.readouterr().out)
