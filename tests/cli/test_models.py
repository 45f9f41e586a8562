"""``paceline models``: workloads, clusters with their prices, and devices."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.command_line import refused


def _rows(paceline, kind):
    return {row["name"]: row for row in json.loads(paceline("models", "list", "--json").stdout) if row["kind"] == kind}


def test_the_list_as_json_carries_devices_prices_and_figures(folder: Path, paceline) -> None:
    clusters = _rows(paceline, "cluster")
    price = clusters["p2.8xlarge"]["price"]
    assert (price["usd_per_node_hour"], clusters["p2.8xlarge"]["devices_per_node"]) == (7.2, 8)
    assert price["source"]
    assert price["date"]
    assert price["terms"]
    assert clusters["dgx-1-v100"]["price"] is None
    assert clusters["dgx-1-v100"]["device"] == "Tesla V100-SXM2"
    device = _rows(paceline, "device")["a100-sxm4-40gb"]
    assert device["peak_flops_per_s"]["tf32"] == 156e12
    assert device["memory_bandwidth_bytes_per_s"] == 1555e9
    assert "NVIDIA A100-SXM4-40GB" in device["aliases"]
    assert _rows(paceline, "device")["xeon-8124m-2s"]["float32_flops_per_s"] == 36 * 3e9 * 64
    workloads = _rows(paceline, "workload")
    assert workloads["cnn-cpu"]["device"]
    assert (workloads["cnn-cpu"]["computed"], workloads["gpt-1.3b"]["computed"]) == (False, True)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_list_fits_the_terminal(folder: Path, paceline, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    kinds = ("workloads", "clusters", "devices")
    tables = [paceline("models", "list", kind).stdout.splitlines() for kind in kinds]
    assert tuple(table[0].strip() for table in tables) == kinds
    lines = [line for table in tables for line in table]
    assert max(cell_len(line) for line in lines) <= width
    told = {line.split()[0]: line for line in lines if line.strip()}
    assert "7.20" in told["p2.8xlarge"]
    assert "no price" in told["dgx-1-v100"]
    assert "no price" not in told["p2.8xlarge"]
    assert "computed for A100-SXM4-80GB" in told["gpt-1.3b"]
    assert "computed for" not in told["cnn-cpu"]
    if width >= 100:
        assert "8 x Tesla V100-SXM2" in told["dgx-1-v100"]
    assert told["a100-sxm4-40gb"].split()[-5:] == ["40", "1,555", "19.5", "156", "312"]


def test_the_list_of_all_kinds_has_their_names(folder: Path, paceline, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "models" / "clusters").mkdir(parents=True)
    (folder / "models" / "clusters" / "mine.toml").write_text('name = "mine"\ninter_node = {bandwidth = "1 GB/s"}\n')
    monkeypatch.setenv("COLUMNS", "80")
    shown = paceline("models", "list").stdout
    lines = shown.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    rows = json.loads(paceline("models", "list", "--json").stdout)
    assert {row["name"] for row in rows} <= set(shown.replace(",", " ").split())
    assert f"{sum(row['kind'] == 'cluster' for row in rows)} clusters" in [line.strip() for line in lines]
    assert "  mine *, a100-80gb-hdr4, " in shown
    assert "* your own" in lines[-1]


def test_a_device_is_shown_by_name_and_by_path(folder: Path, paceline) -> None:
    by_name = paceline("models", "show", "t4", "--json")
    assert (by_name.code, by_name.stderr) == (0, "")
    assert json.loads(by_name.stdout)["name"] == "Tesla T4"
    shown = paceline("models", "show", "t4").stdout
    (folder / "mine.toml").write_text(shown)
    assert json.loads(paceline("models", "show", "mine.toml", "--json").stdout) == json.loads(by_name.stdout)


def test_a_broken_device_is_listed_with_what_is_wrong(folder: Path, paceline) -> None:
    (folder / "models" / "devices").mkdir(parents=True)
    (folder / "models" / "devices" / "broken.toml").write_text('name = "x"\ngeneration = "y"\n')
    rows = _rows(paceline, "device")
    assert rows["broken"]["description"].startswith("cannot be used: models/devices/broken.toml: year: ")
    assert "t4" in rows
    assert "broken * (cannot be used)" in " ".join(paceline("models", "list").stdout.split())
    assert "cannot be used" in " ".join(paceline("models", "list", "devices").stdout.split())
    answer = paceline("models", "show", "broken")
    assert (answer.code, answer.stdout) == (2, "")
    assert answer.stderr.startswith("paceline: models/devices/broken.toml: year: ")


def test_one_kind_is_listed_with_ones_own_first(folder: Path, paceline) -> None:
    (folder / "models" / "workloads").mkdir(parents=True)
    (folder / "models" / "workloads" / "mine.toml").write_text(paceline("models", "show", "gpt-1.3b").stdout)
    answer = paceline("models", "list", "workloads")
    lines = answer.stdout.splitlines()
    assert lines[0].strip() == "workloads (* your own)"
    assert lines[3].startswith("mine *  ")
    assert "clusters" not in answer.stdout
    rows = json.loads(paceline("models", "list", "workloads", "--json").stdout)
    assert (rows[0]["name"], rows[0]["own"], {row["own"] for row in rows[1:]}) == ("mine", True, {False})
    assert {row["kind"] for row in rows} == {"workload"}
    assert "your own" not in paceline("models", "list", "devices").stdout
    refused(paceline("models", "list", "workload"), "'workload'", "'workloads'?")


def test_long_lists_are_left_out_of_what_is_shown(folder: Path, paceline) -> None:
    shown = paceline("models", "show", "cnn-cpu").stdout
    spec = json.loads(paceline("models", "show", "cnn-cpu", "--json").stdout)
    draws, values = spec["uncertainty"]["draws"], spec["jitter"]["values"]
    assert f"# draws: {len(draws)} values, " in shown
    assert f"# values: {len(values)} values, " in shown
    assert tomllib.loads(shown)["uncertainty"]["parameters"] == spec["uncertainty"]["parameters"]
    assert max(map(len, shown.splitlines())) < 300
