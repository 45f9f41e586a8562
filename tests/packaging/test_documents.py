"""What README and docs show is true: their scenarios load, the notebook runs, no registry's host is named."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from simulator import load_scenario, scenario_from_table

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def toml_blocks() -> list[tuple[str, str]]:
    return [
        (page.name, block)
        for page in PAGES
        for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
        if "[strategy]" in block
    ]


@pytest.mark.parametrize(("page", "block"), toml_blocks())
def test_scenarios_in_the_documents_load(page, block, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert scenario_from_table(tomllib.loads(block), page).replicas >= 1


@pytest.mark.parametrize("path", sorted((ROOT / "models" / "scenarios").glob("*.toml")), ids=lambda path: path.stem)
def test_example_scenarios_load(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert load_scenario(path).replicas == 8


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102 - our own notebook
    assert "workers:" in capsys.readouterr().out


def test_links_in_the_documents_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_no_registry_is_named():
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "*.txt", "*.toml", "*.md", "*.py", "Makefile", ".ci/run"],
        capture_output=True,
        text=True,
        check=True,
    )
    hosts = re.compile("|".join(["pypi" + r"\.org", "pythonhosted" + r"\.", "registry" + r"\.npmjs", "deb" + r"\.debian"]))
    assert tracked.stdout
    for name in tracked.stdout.split():
        assert not hosts.search((ROOT / name).read_text(errors="replace")), name
