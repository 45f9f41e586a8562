"""What Tab offers: by the environment variables in which shells ask, and by bash itself with the script that is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from completion_keys import text_of_keys
from support.command_line import Answer
from support.programs import program

from paceline.cli import completing
from paceline.scenario_text import BEGUN_WITH
from simulator.base.catalog import entries
from simulator.catalogue.loading import load_scenario
from simulator.strategies.catalogue import KINDS, SHORT_NAMES

Runner = Callable[..., Answer]
Tab = Callable[[str], list[str]]


@pytest.fixture
def tab(paceline: Runner, monkeypatch: pytest.MonkeyPatch) -> Tab:
    """What zsh is offered behind a line."""

    def offered(line: str) -> list[str]:
        monkeypatch.setenv("_PACELINE_COMPLETE", "complete_zsh")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        answer = paceline()
        monkeypatch.delenv("_PACELINE_COMPLETE")
        assert (answer.code, answer.stderr) == (0, "")
        if answer.stdout == "_files\n":
            return []
        assert answer.stdout.startswith("_arguments '*: :((")
        assert answer.stdout.endswith("))'\n")
        return re.findall(r'^(?:_arguments \'\*: :\(\()?"([^"]*)"', answer.stdout, re.MULTILINE)

    return offered


def test_the_keys_are_those_of_the_formats() -> None:
    """If this fails: ``python docs/completion_keys.py``."""
    assert completing.KEYS_FILE.read_text(encoding="utf-8") == text_of_keys()


def test_every_key_is_one_that_a_setting_takes() -> None:
    """A key that the format does not have would be refused as such, whatever its value."""
    keys = json.loads(completing.KEYS_FILE.read_text())["scenario"]
    assert {
        "strategy.workers",
        "cluster.inter_node.bandwidth",
        "run.seed",
        "workload.jitter.sigma",
        "job.epochs",
        "input.use",
    } <= keys.keys()
    assert keys["strategy.kind"]["values"] == list(KINDS)
    assert set(keys["workload.jitter.kind"]["values"]) >= {"constant", "lognormal", "gamma", "exponential"}
    plain = load_scenario("ring")
    for key, values in ((key, its["values"]) for key, its in keys.items() if key.startswith("run.") and "values" in its):
        for value in values:
            if (key, value) != ("run.start", "staggered"):  # which needs a spread
                load_scenario(plain, {key: {"true": True, "false": False}.get(value, value)})


@pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("paceline ", ["quickstart", "simulate", "models"], ["list", "--help"]),
        ("paceline si", ["simulate"], ["sweep"]),
        ("paceline --", ["--version", "--help"], ["simulate"]),
        ("paceline models ", ["list", "show"], ["simulate"]),
        ("paceline models list ", ["workloads", "clusters", "devices", "inputs", "faults", "scenarios"], ["matrices"]),
        ("paceline simulate ", ["ring", "async-ps", "s.toml"], ["ethernet-25g", "data.csv"]),
        ("paceline simulate ring --", ["--set", "--epochs", "--json", "--help"], ["--over", "--out"]),
        ("paceline simulate ring --json --", ["--set"], ["--json"]),
        ("paceline simulate ring --set strategy.wor", ["strategy.workers=", "strategy.workers=VALUE"], ["strategy.kind="]),
        ("paceline simulate ring --set strategy.kin", [f"strategy.kind={kind}" for kind in KINDS], ["strategy.kind="]),
        ("paceline simulate ring --set strategy.mode=a", ["strategy.mode=async"], ["strategy.mode=sync"]),
        ("paceline simulate ring --set run.drain=", ["run.drain=true", "run.drain=false"], []),
        ("paceline simulate ring --set cluster.use=ethernet-2", ["cluster.use=ethernet-25g"], ["cluster.use=ethernet-1g"]),
        ("paceline simulate ring --set cluster.device=t", ["cluster.device=t4"], []),
        ("paceline simulate ring --set workload.jitter.kind=", ["workload.jitter.kind=gamma"], []),
        ("paceline sweep ring --set run.seed=1 --over strategy.mode=sync,", ["strategy.mode=sync,async"], ["strategy.mode=sync,sync"]),
        ("paceline sweep ring --backend ", ["local", "dask", "ray"], ["s.toml"]),
        ("paceline sweep ring --backend=d", ["--backend=dask"], ["--backend=ray"]),
        ("paceline plan ring --clusters p3.2xlarge,t", [], ["t4"]),
        ("paceline plan ring --clusters p3.2xlarge,p3.8", ["p3.2xlarge,p3.8xlarge"], []),
        ("paceline plan ring --strategies ring,async", ["ring,async-ps"], ["ring,ring"]),
        ("paceline plan ring --price p3.2", ["p3.2xlarge="], []),
        ("paceline plan ring --prefer ", ["cheapest", "fastest", "fewest-devices"], []),
        ("paceline memory ", ["ring"], ["ethernet-25g"]),
        ("paceline schema ", ["scenario", "testbed-setting"], []),
        ("paceline models show p3", ["p3.16xlarge"], ["ring"]),
        ("paceline testbed run --set compute.k", ["compute.kind=real"], ["strategy.kind="]),
        ("paceline testbed run --set lin", ["link.bandwidth="], []),
        ("paceline validate --matrix ", ["quick", "headline"], ["ring"]),
        ("paceline advise ring --runs-on ker", ["keras"], ["horovod"]),
        ("paceline plan ring --runs-on horovod,", ["horovod,pytorch", "horovod,megatron-lm"], ["horovod,horovod"]),
        ("paceline init --sort ", ["ethernet", "rdma", "given"], ["nvlink"]),
        ("paceline report r.ndjson --figures f --format ", ["png", "svg"], []),
        ("paceline report r.ndjson --figures ", [], ["png"]),
        ("paceline simulate ring --epochs ", [], ["ring"]),
        ("paceline simulate ring -- --s", [], ["--set"]),
        ("paceline nonsense --nonsense simulate 'open", [], ["simulate"]),
    ],
)
def test_what_zsh_is_offered(folder: Path, tab: Tab, line: str, some: list[str], none: list[str]) -> None:
    (folder / "data.csv").write_text("")
    offered = tab(line)
    assert set(some) <= set(offered)
    assert not set(none) & set(offered)
    assert all(word.startswith(line.rpartition(" ")[2].strip("'")) for word in offered)
    assert len(set(offered)) == len(offered)


def test_every_name_of_a_strategy_is_offered(tab: Tab) -> None:
    assert tab("paceline plan ring --strategies ") == list(SHORT_NAMES)
    assert tab("paceline init --strategy ") == list(BEGUN_WITH)
    assert {"cnn-cpu", "s.toml"} <= set(tab("paceline init --workload "))


def test_files_in_folders_are_offered_folder_by_folder(folder: Path, tab: Tab) -> None:
    (folder / "mine" / "deep").mkdir(parents=True)
    (folder / "mine" / "a.toml").write_text("")
    (folder / "mine" / "b.csv").write_text("")
    assert tab("paceline simulate mi") == ["mine/", "mine/a.toml", "mine/deep/"]
    assert tab("paceline simulate mine/") == ["mine/a.toml", "mine/deep/"]
    assert tab(f"paceline simulate {folder}/mine/a") == [f"{folder}/mine/a.toml"]
    assert tab("paceline simulate none/") == []


@pytest.mark.parametrize(
    ("words", "number", "offered"),
    [
        ("paceline sim", 1, ["simulate"]),
        ("paceline simulate ring --set strategy.mo", 4, ["strategy.mode=sync", "strategy.mode=async", "strategy.mode=ssp"]),
        ("paceline simulate ring --set strategy.mode =", 5, ["sync", "async", "ssp"]),
        ("paceline simulate ring --set strategy.mode = a", 6, ["async"]),
        ("paceline sweep ring --over strategy.mode = sync,a", 6, ["sync,async"]),
        ("paceline sweep ring --backend = r", 5, ["ray"]),
        ("paceline sweep ring --backend =", 4, ["local", "dask", "ray"]),
        ("paceline calibrate m.py : build --prec", 5, ["--precision"]),
        ("paceline simulate ring --set run.seed = 1 --js", 7, ["--json"]),
    ],
)
def test_bash_splits_words_at_equals_signs(
    paceline: Runner, monkeypatch: pytest.MonkeyPatch, words: str, number: int, offered: list[str]
) -> None:
    monkeypatch.setenv("_PACELINE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(number))
    assert paceline().stdout.splitlines() == offered


NAME = "tensorpack-p100-resnet50-tensorpack-parameter-server: 8 on 1.toml"


@pytest.mark.parametrize(
    ("instruction", "line", "offered"),
    [
        ("complete_bash", f"paceline simulate {NAME[:51]}", NAME.replace(" ", "\\ ")),
        ("complete_bash", f"paceline simulate {NAME[:-13]} : \\ 8", "\\ 8\\ on\\ 1.toml"),
        ("complete_bash", f"paceline simulate '{NAME[:-8]}", NAME),
        ("complete_zsh", f"paceline simulate '{NAME[:-8]}", NAME.replace(":", "\\\\:")),
        ("complete_fish", f"paceline simulate {NAME[:51]}", NAME),
        ("complete_powershell", f"paceline simulate {NAME[:51]}", f"'{NAME}':::"),
    ],
)
def test_a_file_whose_name_has_spaces_is_one_word_in_every_shell(
    folder: Path, paceline: Runner, monkeypatch: pytest.MonkeyPatch, instruction: str, line: str, offered: str
) -> None:
    (folder / NAME).write_text("")
    monkeypatch.setenv("_PACELINE_COMPLETE", instruction)
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", "4" if " : " in line else "2")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_WORD_TO_COMPLETE", line.rpartition(" ")[2])
    assert offered in paceline().stdout


def test_fish_and_powershell(paceline: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_PACELINE_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "paceline swe")
    assert re.fullmatch(r"sweep\tSimulate .+\n", paceline().stdout)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "is-args")
    assert paceline().code == 0
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "paceline report ")
    assert paceline().code == 1
    monkeypatch.setenv("_PACELINE_COMPLETE", "complete_powershell")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "paceline swe")
    monkeypatch.setenv("_TYPER_COMPLETE_WORD_TO_COMPLETE", "swe")
    assert re.fullmatch(r"sweep:::Simulate .+\n", paceline().stdout)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_that_is_installed_works_in_bash(folder: Path) -> None:
    (folder / "bin").mkdir()
    paceline = program(folder / "bin" / "paceline", "from paceline.cli.app import main\nmain()\n")
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    def run(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    script = run(paceline, "--show-completion", "bash")
    assert "complete -o default -F _paceline_completion paceline" in script
    line = "COMP_WORDS=(paceline sweep ring --over strategy.mode = sy); COMP_CWORD=6; _paceline_completion paceline"
    assert run("bash", "--norc", "-c", f"{script}\n{line}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"") == "sync\n"


def test_offered_names_are_those_of_the_catalogue(folder: Path, tab: Tab) -> None:
    (folder / "models" / "clusters").mkdir(parents=True)
    (folder / "models" / "clusters" / "my-lab.toml").write_text("")
    assert tab("paceline plan ring --clusters ") == list(entries("clusters"))
    assert "my-lab" in entries("clusters")
