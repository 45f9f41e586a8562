"""``--from-tf-config``: what a TF_CONFIG or a ClusterSpec becomes."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibrate.tf_config import read_tf_config, scenario_text
from paceline.cli.app import main
from simulator import Scenario, scenario_from_table
from simulator.base.errors import InputError


def scenario(jobs: dict[str, Any], devices: int = 1) -> tuple[Scenario, str]:
    """The scenario of a cluster, and its remarks."""
    text = scenario_text(read_tf_config(json.dumps({"cluster": jobs})), "cnn-cpu", 32, devices_per_worker=devices)
    return scenario_from_table(tomllib.loads(text), "new.toml"), "\n".join(line[2:] for line in text.splitlines() if line.startswith("# "))


def hosts(name: str, count: int) -> list[str]:
    return [f"{name}{index}:2222" for index in range(count)]


def test_with_parameter_servers_the_chief_coordinates_and_the_evaluator_is_left_out() -> None:
    found, remarks = scenario({"chief": hosts("c", 1), "worker": hosts("w", 4), "ps": hosts("p", 2), "evaluator": hosts("e", 1)})
    assert found.strategy.kind == "parameter-server"
    assert (found.strategy.mode, found.strategy.server_placement) == ("async", "dedicated")
    assert (found.replicas, found.servers, found.cluster.nodes) == (4, 2, 6)
    assert "The chief (c0:2222) is the coordinator" in remarks
    assert "Evaluators are left out" in remarks


def test_without_parameter_servers_the_chief_is_worker_0() -> None:
    found, remarks = scenario({"chief": hosts("c", 1), "worker": hosts("w", 3)}, devices=2)
    assert found.strategy.kind == "multi-worker-mirrored"
    assert (found.strategy.workers, found.strategy.replicas_per_worker, found.replicas) == (4, 2, 8)
    assert (found.cluster.nodes, found.cluster.devices_per_node) == (4, 2)
    assert "(c0:2222) is worker 0" in remarks


@pytest.mark.parametrize(("devices", "kind", "replicas"), [(1, "single", 1), (4, "mirrored", 4)])
def test_one_worker_alone_trains_on_its_own_devices(devices: int, kind: str, replicas: int) -> None:
    for job in ("chief", "worker"):
        found, _ = scenario({job: ["h:1"]}, devices)
        assert (found.strategy.kind, found.replicas, found.cluster.nodes) == (kind, replicas, 1)


def test_servers_on_the_workers_hosts_are_colocated() -> None:
    found, remarks = scenario({"worker": ["a:1", "b:1"], "ps": ["a:2", "b:2"]})
    assert (found.strategy.server_placement, found.cluster.nodes) == ("colocated", 2)
    found, remarks = scenario({"worker": ["a:1", "b:1"], "ps": ["a:2", "c:2"]})
    assert found.strategy.server_placement == "dedicated"
    assert "are on 1 host;" in remarks
    assert "has 4 nodes; the addresses name 3 hosts" in remarks
    assert found.cluster.nodes is None


def test_workers_that_share_a_host_share_a_node() -> None:
    found, remarks = scenario({"worker": ["a:1", "a:2", "b:1", "b:2"]})
    assert (found.cluster.nodes, found.cluster.devices_per_node, found.worker_nodes) == (2, 2, 2)
    assert "2 workers share a host" in remarks
    found, remarks = scenario({"worker": ["a:1", "a:2", "a:3", "b:1"]})
    assert found.cluster.devices_per_node == 3
    assert "Hosts have 1 to 3 workers" in remarks


def test_the_same_cluster_in_all_its_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"worker": ["[::1]:1", "h2:2"], "ps": ["h3:3"]}
    forms = [spec, {"cluster": spec}, {"cluster": spec, "task": {"type": "worker", "index": 1}, "environment": "cloud"}]
    forms.append({"worker": {"1": "h2:2", "0": "[::1]:1"}, "ps": {"0": "h3:3"}})  # as ClusterSpec also takes it
    (tmp_path / "tf.json").write_text(json.dumps(spec))
    monkeypatch.setenv("TF_CONFIG", json.dumps(forms[2]))
    clusters = [read_tf_config(text) for text in (*map(json.dumps, forms), str(tmp_path / "tf.json"), "env")]
    assert all(one == clusters[0] for one in clusters)
    assert clusters[0].workers == ("[::1]:1", "h2:2")
    assert clusters[0].hosts == ["[::1]", "h2", "h3"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON (Expecting property name"),
        ("none.json", "`tf_config='none.json'`: there is no such file"),
        ("env", "TF_CONFIG): the variable is not set"),
        ('{"task": {"type": "worker"}}', "has no key 'cluster'"),
        ("{}", "has no key 'cluster'"),
        ('{"cluster": ["h:1"]}', 'not ["h:1"]'),
        ('{"cluster": {}}', "cluster.worker: is missing"),
        ('{"worker": []}', "cluster.worker: is empty"),
        ('{"worker": ["h:1"], "ps": []}', "cluster.ps: is empty"),
        ('{"worker": "h:1"}', "cluster.worker: must be a list"),
        ('{"worker": [1]}', "cluster.worker[0]: must be an address"),
        ('{"worker": ["h:1", "h2"]}', "cluster.worker[1]: 'h2': must be HOST:PORT"),
        ('{"worker": ["h:70000"]}', "cluster.worker[0]: 'h:70000': must be HOST:PORT"),
        ('{"worker": {"a": "h:1"}}', "cluster.worker: 'a'"),
        ('{"worker": ["h:1"], "ps": ["h:1"]}', "cluster.ps[0]: h:1 is already the address of cluster.worker[0]"),
        ('{"worker": ["h:1"], "wroker": ["h:2"]}', "cluster.wroker: "),
        ('{"worker": ["h:1"], "master": ["h:2"]}', "'master'"),
        ('{"worker": ["h:1"], "chief": ["h:2", "h:3"]}', "cluster.chief: has 2 addresses"),
        ('{"ps": ["h:1"]}', "cluster.worker: is missing"),
        ('{"ps": ["h:1"], "chief": ["h:2"]}', "cluster.worker: is missing"),
    ],
)
def test_what_is_no_cluster_is_told_in_one_line(text: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(InputError) as error:
        read_tf_config(text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


@pytest.fixture
def paceline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs ``paceline`` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err

    return run


CONFIG = json.dumps({"cluster": {"worker": hosts("w", 3), "ps": hosts("p", 1)}})


@pytest.mark.slow
def test_the_command_writes_a_scenario_that_can_be_simulated_and_never_overwrites_it(paceline: Any, tmp_path: Path) -> None:
    code, _, err = paceline("calibrate", "--name", "cnn-cpu", "--from-tf-config", CONFIG, "--batch", "32", "--cluster", "ethernet-10g")
    assert (code, "paceline simulate cnn-cpu-scenario.toml" in err) == (0, True)
    written = (tmp_path / "cnn-cpu-scenario.toml").read_text()
    code, out, err = paceline("simulate", "cnn-cpu-scenario.toml", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["scenario"]["cluster"]["name"] == "ethernet-10g"
    assert told["scenario"]["strategy"]["workers"] == 3
    code, _, err = paceline("calibrate", "--name", "cnn-cpu", "--from-tf-config", CONFIG, "--batch", "64")
    assert (code, "--force" in err) == (2, True)
    assert (tmp_path / "cnn-cpu-scenario.toml").read_text() == written


def test_the_command_answers_in_json(paceline: Any) -> None:
    code, out, _ = paceline("calibrate", "--name", "cnn-cpu", "--from-tf-config", CONFIG, "--batch", "32", "-o", "s.toml", "--json")
    assert code == 0
    told = {"file": "s.toml", "strategy": "parameter-server", "replicas": 3, "servers": 1, "nodes": 4, "batch_per_replica": 32}
    assert json.loads(out) == told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from-tf-config", CONFIG], "--batch is missing"),
        (["--from-tf-config", CONFIG, "--batch", "16,32"], "--batch 16,32"),
        (["--from-tf-config", CONFIG, "--batch", "0"], "--batch 0: must be at least 1"),
        (["--from-tf-config", CONFIG, "--batch", "8", "--devices-per-worker", "0"], "--devices-per-worker 0: must be at least 1"),
        (["--from-tf-config", CONFIG, "--batch", "8", "--devices-per-worker", "2"], "parameter servers"),
        (["--from-tf-config", CONFIG, "--batch", "8", "--cluster", "none"], "'none'"),
        (["--from-tf-config", "", "--batch", "8"], "--from-tf-config ''"),
        (["--cluster", "x", "m.py:build"], "--cluster: needs --from-tf-config"),
        (["--devices-per-worker", "2", "m.py:build"], "--devices-per-worker: needs --from-tf-config"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(paceline: Any, tmp_path: Path, arguments: list[str], says: str) -> None:
    code, _, err = paceline("calibrate", "--name", "cnn-cpu", *arguments)
    (line,) = err.strip().splitlines()
    assert says in line
    assert code == 2
    assert not list(tmp_path.iterdir())


def test_a_workload_that_there_is_not_is_told(paceline: Any, tmp_path: Path) -> None:
    code, _, err = paceline("calibrate", "--name", "cnn-cpo", "--from-tf-config", CONFIG, "--batch", "8")
    assert (code, "did you mean cnn-cpu" in err) == (2, True)
    assert not list(tmp_path.iterdir())
