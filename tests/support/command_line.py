"""The command line: a scenario file for it, how it ended, and what every refusal has in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SCENARIO = """\
[workload]
name = "plain"
batch_per_replica = 10
forward = {base = "1 ms", per_sample = "100 us"}
backward = {base = "2 ms", per_sample = "200 us"}
jitter = {kind = "lognormal", sigma = 0.1}
variables = [
    {name = "kernel", size = "1 MB", creation_index = 0, ready = 0.5},
    {name = "bias", size = "1 kB", creation_index = 1, ready = 1.0},
]

[cluster]
name = "lab"
inter_node = {bandwidth = "1 GB/s", latency = "20 us"}
transport = {software = "given"}

[strategy]
kind = "parameter-server"
mode = "async"
workers = 2

[run]
steps = 4
replications = 2
"""
"""Small and valid; tests change a line of it."""


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(answer: Answer, *fragments: str, code: int = 2) -> None:
    """One line, the right code, nothing on stdout."""
    assert answer.code == code, answer
    assert answer.stdout == ""
    assert answer.stderr.startswith("paceline: ")
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert answer.stderr.endswith("\n")
    assert answer.stderr.rstrip("\n").isprintable()
    assert len(answer.stderr) < 700
    assert "Traceback" not in answer.stderr
    for fragment in fragments:
        assert fragment in answer.stderr, answer.stderr
