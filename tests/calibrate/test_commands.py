"""``paceline calibrate`` and ``paceline calibrate-link``, as a person types them."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeAlias

import pytest
from support.measurements import Synthetic, Truth, gamma_of, step_records, write_lines

import calibrate
import paceline as package
from calibrate.fit.link import fit_link
from calibrate.fit.server import fit_server
from simulator.catalogue.loading import load_workload

Paceline: TypeAlias = Callable[..., tuple[int, str, str]]

ROOT = Path(calibrate.__file__).parent.parent
MODELS = ROOT / "models" / "keras"


def test_a_model_becomes_a_workload_file(paceline: Paceline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe's part is played by a function: what it is asked for, and what becomes of the files that it writes."""
    asked: list[dict[str, str]] = []

    def measure(probe: str, arguments: list[str], out: Path, *_: object) -> None:
        assert probe == "step"
        write_lines(out, step_records(Truth(batches=(8, 16)), gamma_of(0.1), seed=len(asked)))
        asked.append(dict(itertools.pairwise(arguments)))

    monkeypatch.setattr("calibrate.profiling.run_probe", measure)
    target = f"{MODELS / 'mlp.py'}:build"
    options = ("--batch", "8,16", "--steps", "10", "--runs", "2", "--device", "CPU")
    code, out, err = paceline("calibrate", target, "--name", "mlp", *options, "--json", "--accept-disturbed")
    assert code == 0, err
    assert len(asked) == 2
    wanted = {"--model": target, "--batches": "8,16", "--steps": "10", "--device": "CPU", "--precision": "float32"}
    assert all(wanted.items() <= one.items() for one in asked)
    summary = json.loads(out)
    workload = load_workload(tmp_path / "models" / "workloads" / "mlp.toml")
    assert summary["name"] == workload.name == "mlp"
    assert summary["forward"]["base_s"] == workload.forward.base_s
    assert (tmp_path / summary["measurements"]).is_file()
    assert (workload.provenance["runs"], len(workload.provenance["measurements"].split())) == ("2", 2)
    assert "calibrate" in workload.provenance["command"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.py:build", "--name", "x"], "nowhere.py: there is no such file"),
        (["no-colon", "--name", "x"], "must be a file and a function in it"),
        (["MODEL", "--name", "x", "--batch", "16"], "--batch 16: must list at least two"),
        (["MODEL", "--name", "x", "--batch", "16,many"], "--batch '16,many': must be whole numbers"),
        (["MODEL", "--name", "x", "--batch", "0,16"], "--batch 0: must be at least 1"),
        (["MODEL", "--name", "x", "--steps", "2"], "--steps 2: must be at least 5"),
        (["MODEL", "--name", "x", "--precision", "float8"], "'float8' must be 'float32', 'mixed_float16', 'mixed_bfloat16' or 'bfloat16'"),
        (["MODEL", "--name", "../x"], "--name '../x' must be letters"),
        (["MODEL", "--name", "x", "--out", "/proc/nothing/x.toml"], "cannot be written"),
        (["MODEL", "--name", "x", "--out", "."], "is a folder"),
        (["MODEL", "--name", "x", "--measurements", "/proc/nothing"], "measurements cannot be stored there"),
        (["MODEL", "--name", "x", "--python", "/no/python"], "--python '/no/python' cannot be run"),
        (["MODEL", "--step", "MODEL", "--name", "x"], "give either"),
        (["--name", "x"], "give either"),
        (["MODEL", "--name", "x", "--timeout", "-1"], "--timeout: -1.0 must be a number of seconds above 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(paceline: Paceline, tmp_path: Path, arguments: list[str], said: str) -> None:
    target = f"{MODELS / 'mlp.py'}:build"
    code, out, err = paceline("calibrate", *[target if one == "MODEL" else one for one in arguments])
    assert code == 2, err
    assert said in err
    assert "\n" not in err.strip()
    assert out == ""
    assert not list(tmp_path.rglob("*.ndjson"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--name is missing"),
        (["--name", "x", "--peer", "somewhere"], "--peer 'somewhere': must be HOST:PORT"),
        (["--serve", "here"], "--serve 'here': must be HOST:PORT"),
        (["--serve", "127.0.0.1:1", "--peer", "127.0.0.1:2"], "--serve and --peer exclude each other"),
        (["--name", "x", "--sizes", "1024"], "--sizes must list at least two"),
        (["--name", "x", "--sizes", "1 KiB"], "--sizes '1 KiB': must be whole numbers"),
    ],
)
def test_a_link_is_asked_for_wrongly(paceline: Paceline, tmp_path: Path, arguments: list[str], said: str) -> None:
    code, _, err = paceline("calibrate-link", *arguments)
    assert code == 2, err
    assert said in err


def test_the_commands_import_nothing_heavy() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import paceline.cli.commands.calibrate, "
        "paceline.cli.commands.calibrate_others; "
        "print(sorted({'tensorflow', 'scipy', 'tomlkit', 'rich.progress'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_fitted_link_is_shown_with_its_interval(
    paceline: Paceline, synthetic: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = fit_link(synthetic.links(50e-6, 1.25e9), "lab")
    monkeypatch.setattr("paceline.api.calibrate_link", wraps(package.calibrate_link)(lambda *_, **__: cluster))
    code, out, err = paceline("calibrate-link", "--name", "lab")
    assert code == 0, err
    assert re.match(r"message of 1 KiB: [\d.]+ µs, [\d.]+ Mbit/s, 90% of messages ±[\d.]+%\nmessage of 256 KiB: ", out)
    assert re.search(r"latency +\d\d\.\d µs +90%: \d\d\.\d µs to \d\d\.\d µs", out)
    assert re.search(r"bandwidth +[\d.]+ Gbit/s +90%: [\d.]+ Gbit/s to [\d.]+ Gbit/s", out)
    assert "wrote models/clusters/lab.toml" in err
    data = json.loads(paceline("calibrate-link", "--name", "lab", "--json")[1])
    assert data["inter_node"]["bandwidth_bytes_per_s"] == cluster.inter_node.bandwidth_bytes_per_s
    assert data["file"] == "models/clusters/lab.toml"


def test_a_fitted_server_is_shown_beside_practice(
    paceline: Paceline, synthetic: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = fit_server(synthetic.exchanges(100e-6, 5e-10), "lab", fit_link(synthetic.links(400e-6, 1.25e9), "lab"))
    monkeypatch.setattr("paceline.api.calibrate_server", wraps(package.calibrate_server)(lambda *_, **__: cluster))
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = paceline("calibrate-server", "--name", "lab")
    assert code == 0, err
    said = " ".join(out.split())
    assert re.search(r"per tensor +\d+(\.\d)? µs +[\d.]+ to [\d.]+ µs .* 90.0 µs", said)
    assert re.search(r"per byte +0\.\d+ ns +[\d.]+ to [\d.]+ ns .* 0\.3 ns", said)
    assert re.search(
        r"^ResNet-50, 161 tensors and 102 MB: one worker's pull and push take 13\d ms .* at most about 7\.\d updates/s fitted: lab", said
    )
    assert "2 x cpu_per_message_s from its latency" in said
    assert "wrote models/clusters/lab.toml" in err
    assert "paceline simulate async-ps --set cluster.use=lab" in err
    data = json.loads(paceline("calibrate-server", "--name", "lab", "--json")[1])
    assert data["transport"]["cpu_per_message_s"] == cluster.transport.cpu_per_message_s
    assert data["fit_hosts"]["push"]["per_tensor_s"] > data["fit_hosts"]["pull"]["per_tensor_s"]
    assert data["parameter_server"]["updates_per_s"] == pytest.approx(1 / (2 * (161 * 100e-6 + 102e6 * 5e-10)), rel=0.05)


def test_a_step_says_when_hosts_limit_before_the_network(paceline: Paceline, synthetic: Synthetic) -> None:
    command = ("calibrate", "--from-measurements", str(synthetic.steps()), "--name", "mine", "--accept-disturbed")
    code, out, err = paceline(*command)
    assert code == 0, err
    assert re.match(r"batch 16: 5\.\d\d ms, 2,\d{3} samples/s, ±\d\.\d%\nbatch 32: ", out)
    assert "hosts limit before a link of 10 Gbit/s, at about" in " ".join(out.split())
    data = json.loads(paceline(*command, "--json")[1])["parameter_server"]
    assert data["hosts_limit_first"]
    assert data["server_host_s"] > data["link_s"] == pytest.approx(26e-6, rel=0.01)
