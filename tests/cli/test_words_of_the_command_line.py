"""The library names arguments, the command line the options that give them; a file in ``commands`` is a sub-command."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Answer, refused
from typer.main import get_command

import paceline as library
from paceline.arguments import arguments_of
from paceline.cli import app as application
from paceline.cli import options
from paceline.cli.options import READERS, in_options
from simulator.base.errors import InputError, PacelineError, PriceWarning

Runner = Callable[..., Answer]
SHORT = ("--set", "run.steps=10", "--set", "run.replications=3")


@pytest.mark.parametrize(
    ("library_says", "command", "command_line_says"),
    [
        ("choose another `out`", "sweep", "choose another --out"),
        ("`force=True` replaces it", "sweep", "--force replaces it"),
        ("`out`: 'x.ndjson': is a folder", "sweep", "--out 'x.ndjson': is a folder"),
        ("`jobs`: -1 must be", "sweep", "--jobs: -1 must be"),
        ("run.steps in `settings`", "sweep", "run.steps in --set"),
        ("give `settings={'run.steps': 200}`", "sweep", "give --set run.steps=200"),
        ("`prices={'lab': '0.40 USD/h'}`", "plan", "--price 'lab=0.40 USD/h'"),
        ("`prices='0.40/h'`", "plan", "--price 0.40/h"),
        ("`over={'run.seed': [1, 2]}`", "sweep", "--over run.seed=1,2"),
        ("`workers='1..64'` or `clusters=['a', 'b']`", "plan", "--workers 1..64 or --clusters a,b"),
        ("`what_ifs=False`", "report", "--no-simulate"),
        ("`source` is no file", "report", "RESULTS.ndjson is no file"),
        ("`observer` and `use` stay, as does `paceline models list`", "plan", "`observer` and `use` stay, as does `paceline models list`"),
    ],
)
def test_arguments_become_options_of_the_command_that_runs(
    library_says: str, command: str, command_line_says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = get_command(application.app).commands[command].params  # type: ignore[attr-defined]
    assert in_options(library_says, params) == command_line_says
    monkeypatch.setattr(options, "running", [])
    assert in_options(library_says) == library_says


@pytest.mark.parametrize(
    ("call", "command", "in_the_library", "on_the_command_line"),
    [
        pytest.param(
            lambda: library.sweep("ring", {"run.seed": [1]}, out="folder"),
            ("sweep", "ring", "--over", "run.seed=1", "--out", "folder"),
            "'folder': is a folder; give the name of a file", "'folder': is a folder; give the name of a file",
            id="a file that cannot be written",
        ),
        pytest.param(
            lambda: library.simulate("ring", prices={"lab": "0.4"}),
            ("simulate", "ring", "--price", "lab=0.4"),
            "`prices={'lab': '0.4'}` must be US dollars per node and a unit of time",
            "--price lab=0.4 must be US dollars per node and a unit of time",
            id="a value that cannot be read",
        ),
        pytest.param(
            lambda: library.simulate("ring", prices={"lab": "0.4/h"}),
            ("simulate", "ring", "--price", "lab=0.4/h"),
            "`prices` 'lab': no cluster here", "--price 'lab': no cluster here",
            id="a name that is none",
        ),
        pytest.param(
            lambda: library.load("p3.2xlarge", {}),
            ("simulate", "rign"),
            "there is no such file", "no file and no scenario",
            id="a scenario that is none",
        ),
        pytest.param(
            lambda: library.report(["r.ndjson"], "page.txt", what_ifs=False),
            ("report", "r.ndjson", "-o", "page.txt", "--no-simulate"),
            "overwrite it with `force=True`, or choose another `out`", "overwrite it with --force, or choose another --out",
            id="a file that is not ours",
        ),
        pytest.param(
            lambda: library.plan("ring", samples=1e6, budget="5 USD", workers=[1], confidence=0.5, settings={"run.steps": 10}),
            ("plan", "ring", "--samples", "1e6", "--budget", "5 USD", "--workers", "1", "--confidence", "0.5", "--set", "run.steps=10"),
            "give `prices`, such as `prices={'ethernet-25g': '0.40/h'}`", "give --price, such as --price ethernet-25g=0.40/h",
            id="what is missing",
        ),
        pytest.param(
            lambda: library.plan("ring", target_throughput="100 samples/s", batches="64..16"),
            ("plan", "ring", "--target-throughput", "100 samples/s", "--batch", "64..16"),
            "`batches` '64..16': is empty", "--batch '64..16': is empty",
            id="an option that is named otherwise than the argument",
        ),
        pytest.param(
            lambda: library.sweep("ring", {"strategy.workers": [1, 0]}),
            ("sweep", "ring", "--over", "strategy.workers=1,0", "--out", "s.ndjson"),
            "strategy.workers: 0 must be", "strategy.workers: 0 must be",
            id="a rule of the scenario's format",
        ),
    ],
)  # fmt: skip
def test_each_kind_of_message(
    folder: Path, paceline: Runner, call: Callable[[], object], command: tuple[str, ...], in_the_library: str, on_the_command_line: str
) -> None:
    (folder / "folder").mkdir()
    (folder / "page.txt").write_text("mine")
    (folder / "r.ndjson").write_text(library.simulate("ring", {"run.steps": 10, "run.replications": 3}).to_json() + "\n")
    with pytest.raises(PacelineError) as said:
        call()
    assert in_the_library in str(said.value)
    assert "--" not in re.sub(r"`paceline [^`]*`", "", str(said.value))
    refused(paceline(*command), on_the_command_line)


@pytest.mark.parametrize(
    ("command", "functions"),
    [
        *((name, (name,)) for name in ("simulate", "memory", "sweep", "advise", "plan", "report")),
        *((name, (name.replace("-", "_"),)) for name in ("calibrate", "calibrate-input", "calibrate-link", "calibrate-server")),
        ("init", ("new_scenario",)),
        (
            "validate",
            ("validate", "refit", "read_matrix", "validate_matrix"),
        ),
    ],
)
def test_a_command_has_the_arguments_of_the_library_under_their_names(command: str, functions: tuple[str, ...]) -> None:
    """Else a message could not name the option; what only a program gives, and thresholds with an option each, are left out."""
    its = {parameter.name for parameter in get_command(application.app).commands[command].params}  # type: ignore[attr-defined]
    own = {"observer", "progress", "remark", "agree", "command", "thresholds"}
    assert {name for function in functions for name in inspect.signature(getattr(library, function)).parameters} - own <= its


@pytest.mark.parametrize("name", sorted(set(library.__all__) - {"read_results"}))
def test_every_argument_is_described_and_can_be_read(name: str) -> None:
    function = getattr(library, name)
    if isinstance(function, type):
        return
    for argument, its in arguments_of(function).items():
        assert its.text, f"{name}: {argument}"
        assert its.typed.reads in {"", "nothing", *READERS}


def every_command() -> Iterator[tuple[str, Any]]:
    for name, command in get_command(application.app).commands.items():  # type: ignore[attr-defined]
        members = getattr(command, "commands", {"": command})
        yield from ((f"{name} {inner}".strip(), its) for inner, its in members.items())


@pytest.mark.parametrize(("name", "command"), [pytest.param(*each, id=each[0]) for each in every_command()])
def test_a_help_names_options_and_no_arguments(name: str, command: Any) -> None:
    """It is the library's, in which arguments and code stand in backticks, functions with their role, and what is left out is None."""
    for its in command.params:
        assert its.hidden or its.help, f"{name}: {its.name}"
        assert not re.search(r"``|:\w+:`|\bNone\b|`[a-z_]+`", its.help or ""), its.help


def test_a_warning_of_the_library_is_a_line(folder: Path, paceline: Runner) -> None:
    answer = paceline("simulate", "ring", *SHORT, "--price", "ethernet-25g=BUY:4000USD,years:4", "--json")
    assert answer.code == 0
    assert answer.stderr.startswith("paceline: ")
    assert all(name in answer.stderr for name in ("ethernet-25g", "$0.11408 per hour", "4,000 USD"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PriceWarning)
        library.load("ring", prices={"ethernet-25g": "0.2/h"})  # nothing that is not plain from what was given
        with pytest.raises(PriceWarning, match="ethernet-25g"):
            library.load("ring", prices={"ethernet-25g": "BUY:4000USD,years:4"})


def test_what_takes_long_is_asked_by_the_library_too() -> None:
    told = []

    def no(work: object) -> None:
        told.append(work)
        raise InputError("not today")

    with pytest.raises(InputError, match="not today"):
        library.simulate("ring", {"run.replications": 100_000, "run.steps": 200_000}, agree=no)
    (work,) = told
    assert "200,000 steps" in work.what
    assert work.limit_s == 600.0


def test_a_listed_function_is_a_sub_command(tmp_path: Path) -> None:
    """Its options are its parameters, with what its docstring says of them; several under a name are a group."""
    (tmp_path / "mine.py").write_text(
        "import typer\nfrom paceline.cli import app\nfrom paceline.cli.options import calling\n"
        "@calling()\ndef say_it(*, what_: str, twice: bool = False) -> None:\n"
        "    '''Say something.\n\n    Parameters\n    ----------\n    what_\n        The words.\n"
        "    twice\n        Say it again.\n    '''\n"
        "    typer.echo(what_ * (1 + twice))\n"
        "@calling()\ndef one() -> None:\n    '''One thing.'''\n    typer.echo('one')\n"
        "first, _, last = app.COMMANDS.values()\n"
        "app.COMMANDS = {'Predict': (say_it, *first), 'Look up': (*last, ('things', 'Things.', one))}\n"
    )
    start = (
        f"import sys; sys.path.append({str(tmp_path)!r}); import mine; from paceline.cli.app import main; sys.argv[0] = 'paceline'; main()"
    )

    def run(*words: str) -> str:
        return subprocess.run([sys.executable, "-c", start, *words], capture_output=True, text=True, check=True).stdout

    assert run("say-it", "--what", "hello") == "hello\n"
    assert run("say-it", "--what", "hello", "--twice") == "hellohello\n"
    assert run("things", "one") == "one\n"
    assert "Say it again." in run("say-it", "--help")
    shown = run("--help")
    assert shown.index("  say-it") < shown.index("  quickstart")
    assert shown.index("schema") < shown.index("things")
