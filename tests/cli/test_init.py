"""``paceline init``: a scenario from options, or from questions at a terminal; valid, commented, and never over another file."""

from __future__ import annotations

import csv
import re
import shlex
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.command_line import Answer, refused
from support.terminal import at_a_terminal
from syrupy.assertion import SnapshotAssertion

import paceline as library
from paceline import new_scenario, simulate
from paceline.scenario_text import BEGUN_WITH
from simulator.base.errors import InputError
from simulator.catalogue.loading import load_scenario
from simulator.resolve.measured_defaults import felt_by, slowest_of, with_nominal_defaults
from simulator.resolve.resolve import Asked, resolve
from simulator.results.warnings import warnings_of

Runner = Callable[..., Answer]
OWN = ("--step-time", "250 ms", "--parameters", "25.6e6")


def test_from_options_alone(folder: Path, paceline: Runner, snapshot: SnapshotAssertion) -> None:
    answer = paceline("init", *OWN, "--batch", "64", "--nodes", "4", "--bandwidth", "25 Gbit/s", "--out", "my.toml")
    assert (answer.code, answer.stdout) == (0, "")
    assert answer.stderr == snapshot
    assert (folder / "my.toml").read_text() == snapshot
    scenario = load_scenario("my.toml")
    load = scenario.workload
    assert load.name == "own workload"
    assert scenario.cluster.name == "own cluster"
    assert load.forward(64) + load.backward(64) == pytest.approx(0.25, rel=1e-5)
    assert load.parameter_bytes == pytest.approx(4 * 25.6e6)
    assert scenario.cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(25e9 / 8)
    assert (scenario.replicas, scenario.batch, scenario.job) == (4, 64, None)


@pytest.mark.parametrize(
    "more",
    [
        ("--epochs", "2", "--dataset-size", "1e5"),
        *(
            pytest.param(more, marks=pytest.mark.long)
            for more in ((), ("--strategy", "mirrored", "--devices", "2"), ("--strategy", "single"))
        ),
    ],
)
def test_every_command_that_it_names_can_be_typed(folder: Path, paceline: Runner, more: tuple[str, ...]) -> None:
    answer = paceline("init", *OWN, "--price", "0.40/h", "--out", "a b.toml", *more)
    for line in answer.stderr.splitlines()[2:]:
        words = shlex.split(line)
        assert words[0] == "paceline"
        faster = {"sweep": ("--set", "run.steps=10", "--jobs", "1"), "plan": ("--workers", "1,2", "--jobs", "1", "--set", "run.steps=10")}
        done = paceline(*words[1:], *faster.get(words[1], ()))
        assert done.code in (0, 3), done.stderr


@pytest.mark.parametrize(
    ("given", "active", "swept"),
    [
        ((*OWN,), False, "1,2,4,8"),
        ((*OWN, "--nodes", "4"), True, "1,2,4"),
        ((*OWN, "--nodes", "64"), True, "1,2,4,8"),
        ((*OWN, "--nodes", "6", "--workers", "2"), True, "1,2,4,6"),
        ((*OWN, "--workers", "6"), False, "1,2,4,8"),
        ((*OWN, "--nodes", "4", "--strategy", "async-ps"), True, "1,2,3"),
        ((*OWN, "--nodes", "1"), True, ""),
        (("--workload", "resnet-50", "--cluster", "p3.16xlarge", "--nodes", "2"), True, "1,2"),
    ],
)
def test_machines_that_are_given_are_held_fast(folder: Path, paceline: Runner, given: tuple[str, ...], active: bool, swept: str) -> None:
    answer = paceline("init", *given)
    assert answer.code == 0, answer.stderr
    assert [line.rpartition("=")[2] for line in answer.stderr.splitlines() if "sweep" in line] == [swept] * bool(swept)
    cluster = load_scenario("scenario.toml").cluster
    assert cluster.nodes is None
    assert cluster.available == (int(given[given.index("--nodes") + 1]) if active else None)
    text = (folder / "scenario.toml").read_text()
    assert ("# available = " in text) is not active
    assert "# nodes = " in text
    (folder / "scenario.toml").write_text(text.replace("# nodes = ", "nodes = ").replace("# available = ", "available = "))
    load_scenario("scenario.toml")  # what stands there as a comment would do as well


def test_more_workers_than_machines_are_refused(folder: Path, paceline: Runner) -> None:
    refused(paceline("init", *OWN, "--nodes", "4", "--workers", "5"), "cluster.available (4)", "5")
    assert not (folder / "scenario.toml").exists()


def test_a_file_names_nothing_that_is_only_here(folder: Path, paceline: Runner) -> None:
    assert paceline("init", *OWN).code == 0
    text = (folder / "scenario.toml").read_text()
    assert "docs/" not in text
    assert "models/" not in text


def test_every_key_has_a_comment_and_stays_what_it_was(folder: Path, paceline: Runner) -> None:
    assert paceline("init", *OWN, "--epochs", "90", "--dataset-size", "1.28e6", "--price", "0.40/h").code == 0
    text = (folder / "scenario.toml").read_text()
    keys = [line for line in text.splitlines() if "=" in line and not line.startswith(("#", "    "))]
    assert len(keys) >= 14
    assert all("  # " in line for line in keys)
    table = tomllib.loads(text)
    assert table["job"] == {"epochs": 90, "dataset_size": 1_280_000}
    assert table["cluster"]["price"] == {"usd_per_node_hour": 0.4}


def test_machines_to_buy_are_planned_from_the_file_as_from_the_option(folder: Path, paceline: Runner) -> None:
    """300,000 USD buy three machines of 95,000, whoever says what one costs."""
    bought, without = ("--price", "BUY:95000USD,years:4"), ("--out", "without.toml")
    assert paceline("init", *OWN, "--nodes", "8", *bought).code == 0
    assert paceline("init", *OWN, "--nodes", "8", *without).code == 0
    price = tomllib.loads((folder / "scenario.toml").read_text())["cluster"]["price"]
    assert price == {"purchase_usd": 95_000, "owned": {"years": 4}, "source": "given by the user"}
    goal = ("--samples", "1e6", "--budget", "300000 USD", "--set", "run.steps=10", "--workers", "2..4", "--jobs", "1")
    for answer in (paceline("plan", "scenario.toml", *goal), paceline("plan", "without.toml", *goal, *bought)):
        assert answer.code == 0
        assert "of $285,000 to buy" in " ".join(answer.stdout.split())
    assert "applies to own cluster: bought for" in answer.stderr


@pytest.mark.parametrize("strategy", BEGUN_WITH)
def test_each_strategy_fits_the_machines(folder: Path, strategy: str) -> None:
    devices = 1 if strategy == "ring" else 2
    scenario = library.new_scenario(step_time="1 s", parameters=1e6, nodes=5, devices=devices, strategy=strategy, servers=2, out="s2.toml")
    assert load_scenario("s2.toml") == scenario
    assert scenario.nodes_needed <= 5
    assert scenario.replicas == {"single": 1, "mirrored": 2, "ring": 5}.get(strategy, 6 if scenario.servers else 10)


def test_of_the_catalogue(folder: Path, paceline: Runner) -> None:
    answer = paceline("init", "--workload", "resnet-50", "--cluster", "p3.16xlarge", "--nodes", "2")
    assert answer.code == 0, answer.stderr
    scenario = load_scenario("scenario.toml")
    assert (scenario.replicas, scenario.nodes_needed) == (16, 2)
    assert tomllib.loads((folder / "scenario.toml").read_text())["workload"] == {"use": "resnet-50", "batch_per_replica": 32}


def test_what_the_catalogue_knows_better_is_left_to_it(folder: Path) -> None:
    """ResNet-50 in steps of 300 ms on 64 P100: they scatter as those of the catalogue's own machines do."""
    own = {"step_time": "300 ms", "parameters": 25.6e6, "batch": 64, "cluster": "gce-p100-4", "nodes": 16}
    scenario = library.new_scenario(**own, out="s2.toml")
    text = (folder / "s2.toml").read_text()
    assert scenario.workload.jitter.kind == "constant"
    assert "straggler_cv" in felt_by([scenario])
    assert '\n# jitter = { kind = "lognormal", sigma = 0.015 }' in text
    assert "\n# bucket_size = " in text
    assert scenario.strategy.bucket_size_bytes is None  # as tf.distribute by itself
    loaded = load_scenario("s2.toml", [("run.steps", 20)])
    wider = library.simulate(loaded, {"workload.jitter": {"kind": "lognormal", "sigma": 0.05}})
    assert library.simulate(loaded).scaling_efficiency.mean > wider.scaling_efficiency.mean + 0.03


@pytest.mark.parametrize(("sort", "share"), [("ethernet", 0.94), ("rdma", 0.95), ("given", 1.0)])
def test_headers_take_their_share_of_a_port(folder: Path, sort: str, share: float) -> None:
    """Of 1,538 bytes that a frame of TCP takes on Ethernet 1,448 are payload: 94%."""
    scenario = library.new_scenario(step_time="100 ms", parameters=3.2e6, nodes=4, bandwidth="1 Gbit/s", sort=sort, out="s2.toml")
    assert scenario.cluster.inter_node.bandwidth_bytes_per_s == 125e6
    slowest = slowest_of(4, 0.1) if sort == "ethernet" else 1.0
    assert with_nominal_defaults(resolve(scenario)).cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(slowest * share * 125e6)
    warned = {warning.code for warning in warnings_of(Asked.of(scenario))}
    assert ("no-sort" in warned) is (sort == "given")
    assert ("\njitter = " in (folder / "s2.toml").read_text()) is (sort == "given")  # what nothing else says


def test_devices_of_a_machine_of_ones_own_are_joined_by_what_is_said(folder: Path) -> None:
    scenario = library.new_scenario(step_time="100 ms", parameters=3.2e6, nodes=2, devices=4)
    assert scenario.cluster.intra_node.sort == "pcie"
    assert scenario.cluster.intra_node.bandwidth_bytes_per_s == pytest.approx(16 * 8e9 * 128 / 130 / 8, rel=1e-3)


def test_a_file_that_is_there_is_replaced_only_by_force(folder: Path, paceline: Runner) -> None:
    (folder / "scenario.toml").write_text("mine")
    refused(paceline("init", *OWN), "--out 'scenario.toml'", "--force")
    assert (folder / "scenario.toml").read_text() == "mine"
    assert paceline("init", *OWN, "--force").code == 0
    load_scenario("scenario.toml")


def test_nothing_is_written_that_cannot_be_simulated(folder: Path) -> None:
    with pytest.raises(InputError, match="`bandwidth`"):
        library.new_scenario(step_time="1 s", parameters=1e6, bandwidth="fast", out="s2.toml")
    assert not (folder / "s2.toml").exists()


def test_tables_of_ones_own_need_no_name(folder: Path) -> None:
    text = (folder / "s.toml").read_text().replace('name = "plain"\n', "").replace('name = "lab"\n', "")
    (folder / "s.toml").write_text(text)
    scenario = load_scenario("s.toml")
    assert (scenario.workload.name, scenario.cluster.name) == ("own workload", "own cluster")


# --- questions --------------------------------------------------------------------------


def _converse(answers: Sequence[str]) -> tuple[int, str]:
    """Answer the questions on a terminal; the exit code, and what was said."""
    with at_a_terminal("init") as terminal:
        for answer in answers:
            terminal.wait_for(": ", at_the_end=True)
            terminal.type(f"{answer}\n")
        return terminal.ended(), terminal.said


def test_at_a_terminal_it_asks(folder: Path, snapshot: SnapshotAssertion) -> None:
    answers = ["cnn-gpu", "own", "x", "64", "250 ms", "25.6e6", "", "4", "", "25 Gbit/s", "", "ehternet", "ethernet", "0.40/h",
               "rnig", "async-ps", "1", "161", "", "90", "1.28e6"]  # fmt: skip
    code, said = _converse(answers)
    assert code == 0, said
    assert re.findall(r"did you mean ([\w-]+)", said) == ["cnn-cpu", "ethernet", "ring"]
    assert said.replace("\r\n", "\n") == snapshot
    scenario = load_scenario("scenario.toml")
    assert (scenario.replicas, scenario.servers, scenario.batch, scenario.cluster.available) == (3, 1, 64, 4)
    assert scenario.cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(25e9 / 8)
    assert scenario.job is not None


def test_enter_takes_what_was_measured_last(folder: Path) -> None:
    (folder / "models" / "workloads").mkdir(parents=True)
    text = (folder / "s.toml").read_text().partition("[cluster]")[0].replace("[workload]\n", "").replace("batch_per_replica = 10\n", "")
    (folder / "models" / "workloads" / "mine.toml").write_text(text)
    code, said = _converse([""] * 11)
    assert code == 0, said
    assert " [mine]: " in said
    assert load_scenario("scenario.toml").workload.name == "plain"


def test_what_cannot_be_written_is_said_before_the_questions(folder: Path) -> None:
    (folder / "scenario.toml").write_text("mine")
    code, said = _converse([])
    assert code == 2
    assert "--out 'scenario.toml'" in said


def test_sizes_fall_as_those_of_published_networks_do():
    """The cumulated sizes by rank lie between those of the least and the most concentrated network."""
    table = Path(__file__).parents[2] / "models/published/tensors.csv"
    networks: dict[str, list[int]] = {}
    for row in csv.DictReader(table.open(encoding="utf-8")):
        networks.setdefault(row["network"], []).append(int(row["elements"]))
    shares = [np.cumsum(sorted(sizes, reverse=True)) / sum(sizes) for sizes in networks.values()]
    scenario = new_scenario(step_time="40 ms", parameters=25e6, strategy="async-ps")
    sizes = np.array([its.size_bytes for variable in scenario.workload.variables for its in variable.each])
    ours = np.cumsum(sorted(sizes, reverse=True)) / sizes.sum()
    assert len(ours) == 160
    for share in (1, 7, 15, 31, 63):
        theirs = [np.interp(share / 160, np.arange(1, len(its) + 1) / len(its), its) for its in shares]
        assert abs(ours[share - 1] - np.median(theirs)) < 0.1


def test_a_server_updates_the_slots_of_the_optimizer():
    """Twice for each byte of a slot: of 100 MB that Adam updates at 10 GB/s each worker's push takes 40 ms of the server."""
    figures = {"step_time": "40 ms", "parameters": 25e6, "strategy": "async-ps", "workers": 4, "largest": 0.9}
    plain, adam = (simulate(new_scenario(**figures, optimizer=name)) for name in ("sgd", "adam"))
    assert not any("server_update_byte_s" in its.value for its in plain.assumed)
    assert any("server_update_byte_s" in its.value for its in adam.assumed)
    assert adam.throughput_samples_per_s.mean < plain.throughput_samples_per_s.mean
    bound = with_nominal_defaults(resolve(adam.scenario)).workload.server(100e6)
    assert bound == pytest.approx(4 * 100e6 / 10e9)


def test_largest_is_a_share_and_optimizer_a_name():
    for bad in ({"largest": 1.5}, {"optimizer": "adamw2"}):
        with pytest.raises(InputError, match=next(iter(bad))):
            new_scenario(step_time="40 ms", parameters=25e6, strategy="async-ps", **bad)
