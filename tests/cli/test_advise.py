"""``paceline advise`` on the command line."""

from __future__ import annotations

import json

from support.command_line import refused

QUICK = ("--set", "run.replications=3", "--set", "run.steps=10", "--jobs", "1")


def test_the_advice_comes_first_and_each_configuration_has_a_line(paceline) -> None:
    answer = paceline("advise", "ring", "--machines", "1,2", "--strategies", "single,ring,async-ps", *QUICK)
    assert answer.code == 0
    assert answer.stdout.startswith("Use ")
    assert answer.stdout.count("async-ps") == 1, "of two machines one has a server"
    assert " *" in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80
    as_json = paceline("advise", "ring", "--machines", "1,2", "--strategies", "single,ring", *QUICK, "--json")
    rows = json.loads(as_json.stdout)["rows"]
    assert [row["strategy"] for row in rows] == ["single", "ring", "ring"]


def test_wrong_input_is_one_line(paceline) -> None:
    refused(paceline("advise", "ring", "--machines", "none"), "--machines", "none")
    refused(paceline("advise", "ring", "--strategies", "rnig", *QUICK), "rnig", "ring?")
    refused(paceline("advise", "ring", *QUICK, "--scheduler", "tcp://127.0.0.1:1"), "--scheduler", "--backend dask")
    refused(paceline("advise", "ring", "--set", "strategy.workers=3", *QUICK), "strategy.workers", "--machines")
