"""What README and docs show is true: scenarios load, commands parse, examples run, quotes have the shape of what commands print."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from quotes import PAGES, ROOT, Quote, answer, quotes_of, rewritten, shown_of

import paceline
from paceline.cli.app import app
from paceline.cli.options import parse_axis, parse_setting
from paceline.diagnosing.causes import CAUSES, STANDING
from paceline.sweeping import grid
from simulator import load_scenario, scenario_from_table, simulate
from simulator.base.spec import keys_of, parts_of
from simulator.checks.invariants import INVARIANTS
from simulator.scenario import Scenario

EXTEND = ROOT / "docs" / "extend.md"


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
            found.add(next(key for key in keys_of(table) if name in (key, f"{key}_s", f"{key}_bytes", f"{key}_bytes_per_s", f"{key}_w")))
            for part in parts_of(field.annotation):
                found |= keys_of_scenarios(part) if issubclass(part, BaseModel) else set()
    return found


def test_keys_in_the_documents_exist():
    """Tables whose first column is called "key", of pages about scenarios; each key's own description is in the schema."""
    known = keys_of_scenarios()
    named = set()
    for page in ("scenario", "numbers", "strategies", "network", "staleness", "jobs", "metrics"):
        table: list[str] = []
        for line in [*(ROOT / "docs" / f"{page}.md").read_text().splitlines(), ""]:
            if line.startswith("| "):
                table.append(line)
                continue
            if table and re.match(r"\| (key|`\[)", table[0]):
                keys = re.findall(r"`([^`]+)`", " ".join(row.split(" | ")[0] for row in table[2:]))
                named |= {part for key in keys for part in re.findall(r"[a-z]\w*", key.split("=")[0])}
            table = []
    assert len(named) > 60
    assert named <= known | {"use"}, named - known


def test_every_cause_is_in_the_table_of_causes():
    shown = " ".join(re.findall(r"^\| (`[^|]+) \|", (ROOT / "docs" / "diagnose.md").read_text(), re.MULTILINE))
    assert {*CAUSES, *(cause.key for cause in STANDING)} <= set(re.findall(r"`([^`]+)`", shown))


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


def test_every_invariant_is_named():
    named = re.findall(r"^\| `(\w+)` \| .+ \|$", EXTEND.read_text(), re.MULTILINE)
    names = [invariant.__name__ for invariant in INVARIANTS]
    assert [name for name in named if name in names] == names


QUOTES = [quote for page in PAGES for quote in quotes_of(page)]
EVERY_QUOTE = pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: f"{quote.page.name}: {quote.command}")


def of_few_runs(quote: Quote) -> list[str]:
    """Arguments that make a command short."""
    command = shlex.split(quote.command)[1]
    few = ["--set", "run.replications=2", "--set", "run.steps=8", "--set", "run.warmup_steps=1"]
    workers = "8" if "fsdp" in quote.command else "16"  # as few as reach the goal
    return {"memory": [], "plan": [*few, "--confidence", "0.5", "--workers", workers, "--jobs", "1"]}.get(command, few)


@EVERY_QUOTE
def test_quoted_commands_answer_in_the_shape_that_pages_show(quote):
    """Of a few short runs: what is shown has its like in the answer, but for what depends on the numbers."""
    printed = answer(quote, *of_few_runs(quote))
    lines = [] if quote.in_sentences else [f"{line}\n" for line in quote.shown.splitlines() if line.strip(" .")]
    parts = [quote._replace(shown=line) for line in lines] or [quote]
    lost = [part.shown for part in parts if rewritten(part, printed)[1]]
    assert len(lost) <= len(parts) // 4, lost


@pytest.mark.long
@pytest.mark.timeout(3600)  # whole plans
@EVERY_QUOTE
def test_pages_quote_what_their_commands_print(quote):
    assert rewritten(quote, answer(quote)) == (quote.shown, []), "make quotes"


def test_many_answers_are_quoted():
    assert len({quote.page for quote in QUOTES}) >= 3


def test_a_quote_follows_the_answer():
    lines = Quote(EXTEND, "paceline simulate ring", "a title\nrate      12 a second\n...\nlimit  The devices\n       wait\n...\ngone\n", 0)
    printed = "a title\nmore\nrate        15 a second\nleft out\nlimit  Communication\n       takes\n       longer\nand so on\n"
    assert rewritten(lines, printed) == (
        "a title\nmore\nrate        15 a second\n...\nlimit  Communication\n       takes\n       longer\n...\ngone\n",
        ["gone"],
    )
    tables = lines._replace(shown="One\nrow\n  1  0.5\nTwo\nrow\n  1  0.6\n")
    assert rewritten(tables, "One\nrow\n  1  0.7\nTwo\nrow\n  1  0.8\n") == ("One\nrow\n  1  0.7\nTwo\nrow\n  1  0.8\n", [])
    sentences = Quote(EXTEND, "paceline plan ring", "It trains 12 samples. It costs $3.", 0)
    assert rewritten(sentences, "Table 1\nIt trains 15 samples. More.\nIt costs $4. So.") == (
        "It trains 15 samples. More. It costs $4.",
        [],
    )
    assert rewritten(sentences, "Nothing.") == (sentences.shown, ["It trains 12 samples."])


def strays(page: Path) -> list[str]:
    """What a page shows as an answer of no command that prints it again: it would go stale."""
    return [quote.shown for quote in shown_of(page) if not quote.repeatable and re.search(r"\d", quote.shown)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_answers_are_quoted_from_a_command_that_prints_them(page):
    assert not strays(page), "name the command above it, so that `make quotes` writes it; or say it without numbers"


def test_an_answer_that_no_command_prints_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    console = "$ paceline calibrate m.py:build\nforward 3 ms\n$ paceline simulate \\\n  ring\n"
    page.write_text(f"```text\n12 samples/s\n```\n\n```console\n{console}```\n> It takes 5 h.\n")
    assert strays(page) == ["12 samples/s\n", "forward 3 ms\n"]
    assert [(quote.command.split(), quote.shown) for quote in quotes_of(page)] == [(["paceline", "simulate", "ring"], "It takes 5 h.")]


MEASURED = {  # numbers of real runs, of others' publications, and of what studies print, beside what they were predicted as
    "numbers": {"Parameter-server hosts", "Formulas", "Replicas that share a device"},
    "extend": {"Speed"},
    "jobs": {"Published fault rates", "How far to trust it"},
    "large-models": {"How far to trust it"},
}
_UNIT = r"(?:samples/s|updates/s|ms|µs|us|ns|s|min|h|d|MiB|GiB|KiB|kB|MB|GB)"
_NUMBER = re.compile(rf"(\$?)(?<![\w.,-])(\d+(?:,\d{{3}})*(?:\.\d+)?)(?: ?({_UNIT})(?![\w/]))?")
CONSTANTS = {
    "128",
    "256",
    "512",
    "8,766",
    "730.5",
    "1,050",
    "1,536",
}  # powers of two, hours of a year and of a month, memory kept by TensorFlow


def typed_numbers(page: Path) -> list[str]:
    """Numbers in a page's sentences and tables as only answers have them: rates, sums of money, and three digits or more with a unit."""
    text = re.sub(r"^```.*?^```$|^> .*?$|`[^`\n]*`|\]\([^)\n]*\)", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    measured = set() if page.name.startswith("fidelity") else MEASURED.get(page.stem, set())
    sections = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    kept = [body for heading, body in zip(["", *sections[1::2]], sections[::2], strict=True) if heading not in measured]
    return [match[0] for body in kept for match in _NUMBER.finditer(body) if _as_in_answers(*match.groups())]


def _as_in_answers(dollar: str, number: str, unit: str | None) -> bool:
    digits = number.replace(",", "").replace(".", "").strip("0" if "." not in number else "")
    rate = unit in ("samples/s", "updates/s")
    return number not in CONSTANTS and bool(dollar or rate or (unit and len(digits.lstrip("0")) >= 3))


@pytest.mark.parametrize("page", [page for page in PAGES if not page.name.startswith("fidelity")], ids=lambda page: page.name)
def test_sentences_hold_no_numbers_of_answers(page):
    assert not typed_numbers(page), "quote the command that prints it, or say it without the number"


def test_a_typed_number_is_noticed(tmp_path):
    page = tmp_path / "jobs.md"
    page.write_text(
        "It trains 94 samples/s for $12, 6.86 h long, with 256 KiB, after 30 s: `--step 1=17.5ms`.\n## How far to trust it\n1.25 s\n"
    )
    assert typed_numbers(page) == ["94 samples/s", "$12", "6.86 h"]


def test_excerpts_of_what_was_fitted_are_of_the_catalogue():
    known = {line.strip() for path in (ROOT / "models").rglob("*.toml") for line in path.read_text().splitlines()}
    shown = {line.strip() for _, block in toml_blocks() for line in block.splitlines() if re.search(r"= [\d.e-]+ # \d", line)}
    assert len(shown) > 5
    assert not shown - known


def test_constants_stand_in_the_documents_as_they_are_used():
    constants = {row["name"]: row for row in tomllib.loads((ROOT / "models" / "practice.toml").read_text())["constant"]}
    shown = {}
    for page in ("numbers",):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        found = re.findall(r"^\| `(\w+)` \| ([\d.]+)(?: (ms|ns))? \(([\d.]+) to ([\d.]+)\) \|", text, re.MULTILINE)
        shown |= {name: [float(each) * {"ms": 1e-3, "ns": 1e-9, "": 1.0}[unit] for each in values] for name, value, unit, *ends in found
                  for values in [(value, *ends)]}  # fmt: skip
    assert shown.keys() == constants.keys() - {"kernel_start_s"}  # which stands in a sentence
    for name, values in shown.items():
        assert values == pytest.approx([constants[name][key] for key in ("value", "low", "high")]), name


def cells_of(page: Path) -> list[list[str]]:
    """The rows of a page's tables."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines() if line.startswith("| ")]


def test_the_readme_has_the_errors_of_the_page_on_fidelity():
    readme, page = cells_of(ROOT / "README.md"), cells_of(ROOT / "docs" / "fidelity.md")
    start = next(number for number, row in enumerate(readme) if row[0] == "compared with")
    rows = readme[start + 2 : start + 7]
    known = [row[1:] for row in page if len(row) == 7]
    assert all(row[1:] in known for row in rows), rows


# -- commands --------------------------------------------------------------------------


def commands() -> list[tuple[str, str, bool]]:
    """Every command line that a document shows, by its page: in a console or a shell script, where it is whole, or in a code span."""
    found = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", "")  # a line that goes on
        blocks = "\n".join(re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL))
        found += [(page.name, line, True) for line in re.findall(r"^(?:\$ )?(paceline .*)$", blocks, re.MULTILINE)]
        found += [
            (page.name, span, False) for span in re.findall(r"(?<!\\)`(paceline [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        ]
    # what installs completion does so as soon as it is parsed
    return list(dict.fromkeys(entry for entry in found if "-completion" not in entry[1]))


def fault_of(line: str, whole: bool = False) -> str:
    """What the command line would refuse of a command before it does anything: an unknown command or option, a wrong value.

    What a sentence leaves out of a command is no fault; what is missing from a whole one is.
    """
    words = shlex.split(line, comments=True)[1:]
    command, context = typer.main.get_command(app), None
    while True:
        try:
            context = command.make_context(words[0] if words else "", list(words), parent=context)
        except Exception as error:  # typer's own copy of click has classes of its own
            told = type(error).__name__, str(error)
            if told[0] == "Exit" or (told[0] in ("MissingParameter", "NoArgsIsHelpError") and not whole):  # --help ends here
                return ""
            return f"{told[0]}: {told[1]}"
        if not hasattr(command, "resolve_command"):
            return ""
        rest = [*context._protected_args, *context.args]
        if not rest:
            return ""
        try:
            _, command, words = command.resolve_command(context, rest)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(("page", "line", "whole"), commands())
def test_commands_in_the_documents_parse(page, line, whole, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert not fault_of(line, whole), f"{page}: {line}"


def test_a_wrong_command_would_be_noticed():
    assert "nonsense" in fault_of("paceline nonsense")
    assert "--nonsense" in fault_of("paceline simulate ring --nonsense")
    assert "MissingParameter" in fault_of("paceline sweep ring", whole=True)
    assert not fault_of("paceline sweep ring")
    assert len(commands()) > 20


# -- Python ----------------------------------------------------------------------------


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_citation_is_of_this_version():
    cited = (ROOT / "CITATION.cff").read_text()
    version, date = re.findall(r"^## (\S+) \(([\d-]+)\)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert version == paceline.__version__
    assert f"\nversion: {version}\n" in cited
    assert f'\ndate-released: "{date}"\n' in cited


def test_the_test_of_a_cluster_passes():
    block = next(block for block in python_blocks(EXTEND) if "def test_" in block)
    defined: dict[str, Any] = {}
    exec(block, defined)  # noqa: S102 - our own document
    (test,) = (function for name, function in defined.items() if name.startswith("test_"))
    test()


def test_the_readme_in_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = {"run.steps": 8, "run.replications": 2, "run.warmup_steps": 1}
    monkeypatch.setattr("paceline.sweep", partial(paceline.sweep, settings=few, jobs=1))
    block = next(block for block in python_blocks(ROOT / "README.md") if "sweep" in block)
    exec(block, {})  # noqa: S102 - our own document
    assert "scaling_efficiency" in capsys.readouterr().out
    assert (tmp_path / "ring.html").stat().st_size > 1e6


def test_looking_inside_a_run_in_python_says_what_a_step_did(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(next(block for block in python_blocks(EXTEND) if "bound_of_step" in block), {})  # noqa: S102 - our own document
    assert re.match(r"Step \d+ of worker \d+ took ", capsys.readouterr().out)


def test_the_plan_of_the_house_names_what_is_there() -> None:
    page = ROOT / "docs" / "development.md"
    named = re.findall(r"`([\w.]+)` (?:of |in )?\(?\[[^\]]*\]\(([^)#]+\.py)\)", page.read_text())
    assert len(named) > 15
    for name, path in named:
        source = (page.parent / path).read_text()
        assert re.search(rf"(?:class|def) {name.split('.')[-1]}\b|^{name} = |^{name}:", source, re.MULTILINE), (name, path)
