"""``paceline memory``: what it prints, as text and as JSON, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable

from support.command_line import Answer, refused

Runner = Callable[..., Answer]
A100 = ("--set", "cluster.use=p4de.24xlarge")


def test_parts_are_printed_and_what_was_not_checked(paceline: Runner) -> None:
    answer = paceline("memory", "ring")
    assert (answer.code, answer.stderr) == (0, "")
    assert "parameters             1.36 MiB" in answer.stdout
    assert "Not checked: the cluster 'ethernet-25g'" in answer.stdout


def test_stages_are_printed_where_nobody_knows_the_device(paceline: Runner) -> None:
    answer = paceline("memory", "pipeline", "--set", "cluster.device=")
    assert (answer.code, answer.stderr) == (0, "")
    assert "Not checked: " in answer.stdout
    assert "stage 0" in answer.stdout
    assert "free" not in answer.stdout


def test_a_model_that_does_not_fit_ends_with_exit_code_3(paceline: Runner) -> None:
    variables = 'workload.variables=[{name="v", size="100 GB", creation_index=0, ready=1.0}]'
    answer = paceline("memory", "ring", *A100, "--set", variables, "--json")
    assert answer.code == 3
    found = json.loads(answer.stdout)
    assert "A100-SXM4-80GB has 74.5 GiB" in found["refused"]
    assert found["free_bytes"] < 0
    (row,) = found["rows"]
    assert row["need_bytes"] == 3 * 100e9 + 1536 * 2**20
    assert row["capacity_bytes"] == 80e9
    refused(paceline("simulate", "ring", *A100, "--set", variables), "74.5 GiB", 'run.memory = "ignore"')


def test_bad_input_gets_one_line(paceline: Runner) -> None:
    refused(paceline("memory", "no-such-scenario"), "no-such-scenario")
    refused(paceline("memory", "ring", "--set", "training.optimizer=magic"), "training.optimizer", "magic")
