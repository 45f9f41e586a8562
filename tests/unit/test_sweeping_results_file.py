"""Results files and sweeps as a library: what is kept, what is refused, and that lines come back as they were written."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.sweeping import Journal, Outcome, Runner, Simulations, grid, outcomes_in, read_results, sweep
from paceline.sweeping.backends import KILLED, WorkersLostError
from paceline.sweeping.results_file import Line, line_in, line_of, outcome_of, with_place
from simulator import Scenario, simulate
from simulator.base.errors import InputError, PacelineWarning, ResultsError, SimulationError
from simulator.base.files import checksum_holds, with_checksum, without_checksum
from simulator.base.text import counted
from simulator.resolve.resolve import Asked
from simulator.results.results import Failure, Result

Build = Callable[..., Scenario]


def many(scenario: Build, workers: tuple[int, ...] = (1, 2, 3), **run: Any) -> list[Scenario]:
    base = scenario(strategy={"kind": "multi-worker-mirrored", "workers": 1}, run={"steps": 5, "warmup_steps": 1, **run})
    return list(grid(base, [("strategy.workers", list(workers))]))


def failing(scenario: Build) -> list[Scenario]:
    """Three, of which the second ends in an error."""
    whole = many(scenario)
    broken = grid(whole[1], [("workload.jitter", [{"kind": "gamma", "shape": 1e-4}])])[0]
    with pytest.raises(SimulationError):
        simulate(broken)
    return [whole[0], broken, whole[2]]


def test_a_file_gives_back_what_was_written(scenario: Build, tmp_path: Path) -> None:
    scenarios, path = many(scenario), tmp_path / "j.ndjson"
    results = [simulate(one) for one in scenarios]
    hashes = [one.hash for one in scenarios]
    with Journal(path) as file:
        for place in (2, 0):
            file.write([(place, line_of(results[place]))])
            assert file.outcome(hashes[place]) == results[place]
        assert [one in file for one in hashes] == [True, False, True]
    assert [json.loads(line)["place"] for line in path.read_text().splitlines()] == [2, 0]
    assert list(read_results(path)) == [results[0], results[2]]
    with Journal(path) as file:
        file.go_on_with(scenarios, hashes)
        file.write([(1, line_of(results[1]))])
        written = file.finish(hashes)
        assert written[2] == results[2]
        assert list(written) == results
    assert path.read_bytes() == b"".join(line_of(result).text for result in results)


def test_the_last_line_of_a_scenario_counts_whatever_the_order(scenario: Build, tmp_path: Path) -> None:
    scenarios, path = failing(scenario), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    finished = path.read_bytes()
    other = simulate(many(scenario)[1]).model_copy(update={"scenario": scenarios[1], "scenario_hash": scenarios[1].hash})
    path.write_bytes(finished + with_place(line_of(other).text, 1))
    read = read_results(path)
    assert [outcome.scenario_hash for outcome in read] == [one.hash for one in scenarios]
    assert (read.failed, read.notes) == ([], ())
    lines = [with_place(line, place) for place, line in enumerate(finished.splitlines(keepends=True))]
    for order, repeated in (((2, 1, 0), 0), ((1, 2, 1, 0, 2), 1), ((2, 0, 0, 1, 2, 2, 0), 4)):  # of the failure nothing is lost
        path.write_bytes(b"".join(lines[place] for place in order))
        notes: list[str] = []
        assert [outcome.scenario_hash for outcome in outcomes_in(path, notes)] == [one.hash for one in scenarios]
        told = f"{path}: {counted(repeated, 'earlier result')} of repeated scenarios"
        assert [note.startswith(told) for note in notes] == [True] * (repeated > 0)
        with pytest.warns(PacelineWarning, match=re.escape(told)) if repeated else nullcontext():
            sweep(scenarios, path, jobs=1)
        assert path.read_bytes() == finished


def test_a_scenario_that_was_edited_does_not_pass_for_the_one_of_its_hash(scenario: Build, tmp_path: Path) -> None:
    scenarios, path = many(scenario), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    finished = path.read_bytes()
    lines = finished.splitlines()
    line = without_checksum(lines[1]).decode()
    assert '"latency_s":' in line
    edited = with_checksum(re.sub(r'"latency_s":[^,}]+', '"latency_s":0.123', line, count=1)).encode()
    assert checksum_holds(edited)
    path.write_bytes(b"\n".join([lines[0], edited, *lines[2:], b""]))
    read = read_results(path)
    assert [outcome.scenario_hash for outcome in read] == [scenarios[0].hash, scenarios[2].hash]
    assert read.notes[0].startswith(f"{path}:2: its scenario does not match its scenario_hash, {scenarios[1].hash}")
    with pytest.warns(PacelineWarning, match=r"r.ndjson:2: its scenario does not match its scenario_hash.*; it is simulated again"):
        sweep(scenarios, path, jobs=1)
    assert path.read_bytes() == finished


def test_a_scenario_that_a_grid_has_twice_is_there_twice(scenario: Build, tmp_path: Path) -> None:
    scenarios, path = many(scenario, (1, 2, 1, 1)), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert lines[0] == lines[2] == lines[3]
    for kept in ((0,), (1,), (3, 1), (0, 1, 2)):
        path.write_bytes(b"".join(with_place(lines[place], place) for place in kept))
        assert len(sweep(scenarios, path, jobs=1)) == 4
        assert path.read_bytes() == whole


def test_a_file_of_another_order_is_gone_on_with(scenario: Build, tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    sweep(many(scenario, (2, 3)), path, jobs=1)

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(many(scenario, (4, 3, 1, 2)), path, jobs=1, progress=stop)
    assert [its.scenario.replicas for its in read_results(path)] == [4, 3, 2]
    assert [its.scenario.replicas for its in sweep(many(scenario, (4, 3, 1, 2)), path, jobs=1)] == [4, 3, 1, 2]


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process that is killed after the first scenario of a run."""

    def run(_: Runner, scenarios: Iterable[Scenario]) -> Iterator[Result]:
        yield simulate(next(iter(scenarios)))
        raise WorkersLostError(*KILLED)

    def completed(runner: Runner, scenarios: Iterable[Scenario]) -> Iterator[list[tuple[int, Result]]]:
        for outcome in run(runner, scenarios):
            yield [(0, outcome)]

    def lines(runner: Runner, scenarios: Iterable[Scenario]) -> Iterator[list[tuple[int, Line]]]:
        for outcome in run(runner, scenarios):
            yield [(0, line_of(outcome))]

    monkeypatch.setattr(Runner, "completed", completed)
    monkeypatch.setattr(Runner, "lines", lines)


_KILLED, _AGAIN = f"{KILLED[0]}; ", KILLED[1]


@pytest.mark.usefixtures("killed")
def test_results_are_said_to_be_kept_only_where_a_file_keeps_them(scenario: Build, tmp_path: Path) -> None:
    out = tmp_path / "j.ndjson"
    with pytest.raises(SimulationError) as lost:
        sweep(many(scenario), out=None)
    assert str(lost.value) == _KILLED + _AGAIN
    with pytest.raises(SimulationError) as lost:
        sweep(many(scenario), out=out)
    assert str(lost.value) == f"{_KILLED}finished results are saved in {out}: {_AGAIN}"


@pytest.mark.usefixtures("killed")
def test_a_plan_says_that_results_are_kept_only_where_they_are(scenario: Build, tmp_path: Path) -> None:
    base, out = many(scenario)[0], tmp_path / "p.ndjson"
    for path, kept in ((None, ""), (out, f"finished results are saved in {out}: ")):
        with pytest.raises(SimulationError) as lost:
            paceline.plan(base, target_throughput="100 samples/s", workers=[1, 2], confidence=0.5, out=path)
        assert str(lost.value) == _KILLED + kept + _AGAIN


def test_a_file_without_a_line_keeps_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.ndjson") as file, pytest.raises(WorkersLostError) as lost, file.keeping():
        raise WorkersLostError(*KILLED)
    assert str(lost.value) == _KILLED + _AGAIN


def refuses_others(path: Path) -> None:
    """A lock is of whoever has opened the file, so that this process may play the other one."""
    with pytest.raises(InputError, match=re.escape(f"`out` {str(path)!r}: another process")):
        Journal(path)


def test_a_file_that_is_open_is_refused_to_others(scenario: Build, tmp_path: Path) -> None:
    path = tmp_path / "j.ndjson"
    line = line_of(simulate(many(scenario)[0]))
    with Journal(path) as file:
        file.write([(0, line)])
        refuses_others(path)
        file.write([(0, line)])
        refuses_others(path)
    with Journal(path):
        assert len(path.read_bytes().splitlines()) == 2


def test_a_finished_file_that_is_open_is_refused_to_others(scenario: Build, tmp_path: Path) -> None:
    path, scenarios = tmp_path / "j.ndjson", many(scenario)[:1]
    with Journal(path) as file:
        file.write([(0, line_of(simulate(scenarios[0])))])
        file.finish([one.hash for one in scenarios])
        refuses_others(path)
    with Journal(path):
        pass


def test_a_new_file_without_a_line_leaves_no_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.ndjson"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"remember the milk", b"{}\n", b'{"name":"a","checksum":"b"}\n', b'{"schema_version":2}\n', b"\xff\xfe\n", b"\0" * 100, b"\n"],
)
def test_what_is_no_results_file_is_refused_and_not_touched(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "j.ndjson"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match=r"j\.ndjson.*`out`"):
        Journal(path)
    assert path.read_bytes() == content
    with Journal(path, force=True) as file:
        assert file.is_empty


def test_garbage_behind_results_is_refused_with_its_line(scenario: Build, tmp_path: Path) -> None:
    path = tmp_path / "j.ndjson"
    line = simulate(many(scenario)[0]).to_json()
    path.write_text(f'{line}\n{{"hello":1}}\n{line}\n')
    with pytest.raises(ResultsError, match=r"j.ndjson:2: is not a result"):
        Journal(path)


def edited(line: bytes) -> bytes:
    """A line in which somebody has doubled the batch."""
    found = re.search(rb'"batch_per_replica":(\d+)', line)
    assert found is not None
    return line.replace(found[0], b'"batch_per_replica":%d' % (2 * int(found[1])))


DAMAGES: list[Callable[[bytes], bytes]] = [
    edited,
    lambda line: line.replace(b'"mean":', b'"mean":1', 1),
    lambda line: line[:-9] + b"\n",
    lambda line: line[:700] + b"\n" + line[700:],
    lambda line: line[:-1] + b"~",
    lambda line: line.replace(b'"checksum"', b'"checksun"'),
    lambda line: line.replace(b'{"schema_version":1,"sc', b'{"schema_versioN":1,"sc'),
    lambda line: line.replace(b',"seed"', b',,"seed"'),
    lambda line: b"\0" * (len(line) - 1) + b"\n",
    lambda line: b"\0" * len(line),
    lambda _: b"hello\n",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_named_and_left_out(scenario: Build, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    sweep(many(scenario), path := tmp_path / "r.ndjson", jobs=1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage(lines[1]) + lines[2])
    read = read_results(path)
    whole = [outcome_of(line) for line in lines]
    assert list(read) in ([whole[0], whole[2]], [whole[0]])  # one without its end takes the next with it
    assert f"{path}:2" in read.notes[0]
    assert re.search("`paceline sweep`", read.notes[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::simulator.base.errors.PacelineWarning")  # of a line that was cut in two there are two
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_damaged_line_is_simulated_again_and_nothing_else(
    scenario: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes], place: int
) -> None:
    scenarios, path = many(scenario, (1, 2, 3, 4)), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    again: list[str] = []
    monkeypatch.setattr("paceline.sweeping.simulating.simulate", lambda one: again.append(one.given.hash) or simulate(one))
    lines[place] = damage(lines[place])
    path.write_bytes(b"".join(lines))
    merged = not lines[place].endswith(b"\n")
    told = pytest.warns(PacelineWarning, match=rf"r.ndjson:{place + 1}: .*simulated again")
    with nullcontext() if merged and place == 3 else told:  # a last line that does not end is no damage
        sweep(scenarios, path, jobs=1)
    assert again == [one.hash for one in scenarios[place : place + 1 + merged]]
    assert path.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["r.ndjson"]


@pytest.mark.filterwarnings("ignore::simulator.base.errors.PacelineWarning")
def test_lines_behind_a_damaged_one_survive_a_crash(scenario: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios, path = many(scenario, (1, 2, 3, 4)), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0] + edited(lines[1]) + lines[2] + edited(lines[3]))
    write = Journal._write

    def stop(file: Journal, line: Line) -> None:
        write(file, line)
        raise SimulationError

    monkeypatch.setattr(Journal, "_write", stop)
    with pytest.raises(SimulationError):
        sweep(scenarios, path, jobs=1)
    monkeypatch.undo()
    assert path.read_bytes() == b"".join(with_place(lines[place], place) for place in (0, 2, 1))
    sweep(scenarios, path, jobs=1)
    assert path.read_bytes() == whole


@pytest.mark.filterwarnings("ignore::simulator.base.errors.PacelineWarning")
def test_a_damaged_file_of_another_sweep_is_not_touched(scenario: Build, tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    sweep(many(scenario), path, jobs=1)
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = lines[0] + edited(lines[1]) + lines[2]
    path.write_bytes(damaged)
    for others in (many(scenario, (1, 2)), many(scenario, (1,)), many(scenario, (4, 5))):
        with pytest.raises(ResultsError, match=r"r.ndjson.*another sweep"):
            sweep(others, path, jobs=1)
        assert path.read_bytes() == damaged
    sweep(many(scenario, (1, 2)), path, jobs=1, force=True)
    assert path.read_bytes() == lines[0] + lines[1]


@pytest.mark.filterwarnings("ignore::simulator.base.errors.PacelineWarning")
def test_failures_behind_a_damaged_line_are_tried_again(scenario: Build, tmp_path: Path) -> None:
    scenarios, path = failing(scenario), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    whole = path.read_bytes()
    path.write_bytes(edited(whole))
    asked: list[Sequence[int]] = []
    sweep(scenarios, path, jobs=1, retry_failed=True, agree=asked.append)
    assert path.read_bytes() == whole
    path.write_bytes(edited(whole))
    sweep(scenarios, path, jobs=1)
    assert path.read_bytes() == whole


@pytest.mark.filterwarnings("ignore::simulator.base.errors.PacelineWarning")
def test_a_plan_simulates_a_damaged_line_again(scenario: Build, tmp_path: Path) -> None:
    scenarios, path = many(scenario, (1, 2, 3, 4, 5)), tmp_path / "r.ndjson"

    def planned() -> int:
        runs = 0

        class Counting(Runner):
            def completed(self, scenarios: Iterable[Scenario]) -> Iterator[list[tuple[int, Outcome]]]:
                nonlocal runs
                for group in super().completed(scenarios):
                    runs += len(group)
                    yield group

        with Journal(path) as file:
            simulations = Simulations(Counting(jobs=1), file)
            for part in (scenarios[:3], scenarios[1:]):
                assert [outcome.scenario_hash for outcome in simulations(part)] == [one.hash for one in part]
            simulations.finish()
            assert [outcome.scenario_hash for outcome in simulations.outcomes] == [one.hash for one in scenarios]
        return runs

    assert planned() == 5
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for place in range(5):
        path.write_bytes(b"".join((*lines[:place], edited(lines[place]), *lines[place + 1 :])))
        assert planned() == 1
        assert path.read_bytes() == whole
    assert planned() == 0
    path.write_bytes(b"".join(with_place(lines[place], place) for place in (3, 0, 1)))
    assert planned() == 2
    assert path.read_bytes() == whole
    path.write_bytes(whole + edited(lines[0]))
    assert planned() == 0
    assert path.read_bytes() == whole
    path.write_bytes(whole + line_of(simulate(many(scenario, (6,))[0])).text)
    with pytest.raises(ResultsError, match="another plan or sweep"):
        planned()


def test_lines_without_a_checksum_must_be_of_their_scenario(scenario: Build, tmp_path: Path) -> None:
    path, lines = tmp_path / "r.ndjson", [simulate(one).to_json().encode() + b"\n" for one in many(scenario)]
    bare = [without_checksum(line) + b"\n" for line in lines]
    path.write_bytes(bare[0] + edited(bare[1]) + bare[2])
    read = read_results(path)
    assert [result.scenario.replicas for result in read.results] == [1, 3]
    assert f"{path}:2: " in read.notes[0]
    assert "scenario_hash" in read.notes[0]
    assert read.notes[1].startswith(f"2 lines of {path} have no checksum")
    with pytest.warns(PacelineWarning, match=r"r.ndjson:2: .*scenario_hash"):
        sweep(many(scenario), path, jobs=1)
    path.write_bytes(edited(bare[1]))
    with pytest.raises(ResultsError, match=r"r.ndjson:1: .*no other result"):
        read_results(path)


def test_damage_in_a_pipe_takes_no_other_line_with_it(scenario: Build, tmp_path: Path) -> None:
    sweep(many(scenario), path := tmp_path / "r.ndjson", jobs=1)
    lines = path.read_bytes().splitlines(keepends=True)
    os.mkfifo(pipe := tmp_path / "pipe")
    path.write_bytes(lines[0] + b"hello\n" + lines[1] + lines[2])
    with subprocess.Popen(["sh", "-c", 'cat "$0" > "$1"', path, pipe]):
        assert len(outcomes_in(pipe)) == 3


def test_a_damaged_tail_of_zeros_is_named_and_simulated_again(scenario: Build, tmp_path: Path) -> None:
    """A crash of the machine may leave the size of a file on disk, and not what stands in it."""
    scenarios, path = many(scenario), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]) + b"\0" * 4096)
    with pytest.warns(PacelineWarning, match=r"r.ndjson:3: must be JSON.*simulated again"):
        sweep(scenarios, path, jobs=1)
    assert path.read_bytes() == whole


def test_only_what_will_be_simulated_is_asked_about(scenario: Build, tmp_path: Path) -> None:
    scenarios, path = failing(scenario), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    lines = path.read_bytes().splitlines(keepends=True)

    def asked(*content: bytes, retry_failed: bool) -> list[int]:
        """Places that a sweep asks about, which is then refused."""
        path.write_bytes(b"".join(content))

        def refuse(places: Iterable[int]) -> None:
            raise InputError(" ".join(map(str, places)))

        with pytest.raises(InputError) as refused:
            sweep(scenarios, path, jobs=1, retry_failed=retry_failed, agree=refuse)
        assert path.read_bytes() == b"".join(content)
        return [int(place) for place in str(refused.value).split()]

    assert asked(edited(lines[0]), *lines[1:], retry_failed=False) == [0]
    assert asked(edited(lines[0]), *lines[1:], retry_failed=True) == [0, 1]
    assert asked(*lines[:2], retry_failed=True) == [1, 2]
    assert asked(*lines, retry_failed=True) == [1]
    assert asked(*lines, retry_failed=False) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"novelty": 1}, "novelty "),
        ({"bottleneck": None}, "bottleneck is missing"),
        ({"replicas": 0}, "replicas: 0 must be at least 1"),
    ],
)
def test_a_line_of_another_version_is_refused_with_its_place(scenario: Build, tmp_path: Path, change: dict[str, Any], why: str) -> None:
    scenarios, path = many(scenario), tmp_path / "r.ndjson"
    sweep(scenarios, path, jobs=1)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    data = {key: value for key, value in (json.loads(without_checksum(lines[1])) | change).items() if value is not None}
    path.write_bytes(lines[0] + json.dumps(data, separators=(",", ":")).encode() + b"\n" + lines[2])
    before = path.read_bytes()
    with pytest.raises(ResultsError, match=re.escape(f"{path}:2: {why}") + ".*`out`.*`force=True`"):
        sweep(scenarios, path, jobs=1)
    with pytest.raises(ResultsError, match=re.escape(f"{path}:2: {why}")):
        read_results(path)
    assert path.read_bytes() == before
    sweep(scenarios, path, jobs=1, force=True)
    assert path.read_bytes() == whole


def test_a_line_without_a_checksum_gets_none(scenario: Build) -> None:
    text = simulate(many(scenario)[0]).to_json().encode() + b"\n"
    for its in (text, without_checksum(text) + b"\n"):
        placed = with_place(its, 7)
        line = line_in(placed)
        assert line is not None
        assert line.place == 7
        assert checksum_holds(placed) is checksum_holds(its)
        assert with_place(placed, None) == its


@pytest.mark.filterwarnings("ignore::simulator.base.errors.PacelineWarning")
def test_what_differs_behind_a_damaged_line_is_said(scenario: Build, tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    sweep(many(scenario), path, jobs=1)
    lines = path.read_bytes().splitlines(keepends=True)
    # of the second, damage has taken the first two lines together, so that the third stands in the second's place
    for damaged in (edited(lines[0]) + lines[1] + lines[2], b"\0" * len(lines[0]) + lines[1] + lines[2]):
        path.write_bytes(damaged)
        with pytest.raises(ResultsError, match=r"r.ndjson:2: .*run.steps was 5 and is now 6;"):
            sweep(grid(many(scenario)[0], [("strategy.workers", [1, 2, 3]), ("run.steps", [6])]), path, jobs=1)
    path.write_bytes(edited(lines[0]) + lines[1] + lines[2])
    with pytest.raises(ResultsError, match=r"r.ndjson:3: .* where strategy.workers was 3 and is now 5;"):
        sweep(many(scenario, (1, 2, 5)), path, jobs=1)
    with pytest.raises(ResultsError, match=r"r.ndjson:3: .*more than 2 scenarios;"):
        sweep(many(scenario, (1, 2)), path, jobs=1)


@pytest.mark.slow
def test_no_flipped_bit_gives_another_figure(scenario: Build, tmp_path: Path) -> None:
    results = [simulate(one) for one in many(scenario, (1, 2))]
    whole = b"".join(with_place(result.to_json().encode() + b"\n", place) for place, result in enumerate(results))
    path, rng = tmp_path / "r.ndjson", random.Random(1)
    first_line = whole.index(b"\n") + 1
    for bit in (*rng.sample(range(8 * len(whole)), 1000), *range(8 * (first_line - 40), 8 * (first_line + 60))):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        notes: list[str] = []
        found = outcomes_in(path, notes)
        assert len(found) < 2
        assert all(outcome in results for outcome in found)
        assert notes


@pytest.mark.slow
def test_a_failure_is_written_and_the_others_go_on(scenario: Build, tmp_path: Path) -> None:
    scenarios = failing(scenario)
    for jobs in (1, 2):
        swept = sweep(scenarios, tmp_path / f"{jobs}.ndjson", jobs=jobs)
        assert [type(outcome) for outcome in swept] == [Result, Failure, Result]
        assert (len(swept), len(swept.results), swept.failed) == (3, 2, [1])
        assert swept.failures[0].scenario == scenarios[1]
        assert swept.failures[0].failed.kind == "SimulationError"
        with pytest.raises(SimulationError, match=r"^1 of 3 scenarios failed: .*check the times.* \(scenario 2\)"):
            swept.check()
    assert (tmp_path / "1.ndjson").read_bytes() == (tmp_path / "2.ndjson").read_bytes()
    read = read_results(tmp_path / "1.ndjson")
    assert (read.results, read.failures) == (swept.results, swept.failures)
    assert read.notes[0].startswith("1 of 3 scenarios failed: ")
    assert outcomes_in(tmp_path / "1.ndjson") == list(swept)


def test_failures_are_kept_unless_they_are_to_be_tried_again(scenario: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.ndjson"
    scenarios = many(scenario, (1, 2, 3, 4))
    sweep(scenarios, tmp_path / "whole.ndjson", jobs=1)

    def moody(one: Asked) -> Result:
        if one.given.replicas in (2, 4):
            raise SimulationError("not in the mood\nfor this")
        return simulate(one)

    monkeypatch.setattr("paceline.sweeping.simulating.simulate", moody)
    swept = sweep(scenarios, path, jobs=1)
    assert [failure.failed.text for failure in swept.failures] == ["not in the mood for this"] * 2
    before = path.read_bytes()
    assert sweep(scenarios, path, jobs=1, retry_failed=True).failed == [1, 3]
    assert path.read_bytes() == before
    monkeypatch.undo()
    assert sweep(scenarios, path, jobs=1).failed == [1, 3]
    assert path.read_bytes() == before
    told: list[tuple[int, int]] = []
    again = sweep(scenarios, path, jobs=1, retry_failed=True, progress=lambda *done: told.append(done))
    assert again.failed == []
    assert told == [(2, 4), (3, 4), (4, 4)]
    assert path.read_bytes() == (tmp_path / "whole.ndjson").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["r.ndjson", "whole.ndjson"]


def test_a_finished_file_is_whole_on_the_disk_before_it_takes_the_journals_place(
    scenario: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, done = tmp_path / "r.ndjson", list[tuple[str, int]]()
    fsync, replace = os.fsync, os.replace

    def synced(file: int) -> None:
        fsync(file)
        done.append(("synced", os.fstat(file).st_size))

    def replaced(source: Path, target: Path) -> None:
        replace(source, target)
        done.append((target.name, 0))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    sweep(many(scenario), path, jobs=1)
    assert done[-2:] == [("synced", path.stat().st_size), ("r.ndjson", 0)]
    done.clear()
    sweep(many(scenario), path, jobs=1)
    assert done == []


def test_stopped_while_it_is_put_in_order_the_journal_stands(scenario: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios, path, told = many(scenario), tmp_path / "r.ndjson", list[int]()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        sweep(scenarios, path, jobs=1, progress=lambda done, _: told.append(done))
    monkeypatch.undo()
    assert told[-1] == len(scenarios)
    assert [json.loads(line)["place"] for line in path.read_text().splitlines()] == [0, 1, 2]
    assert [file.name for file in tmp_path.iterdir()] == ["r.ndjson"]
    whole = sweep(scenarios, tmp_path / "whole.ndjson", jobs=1)
    assert list(sweep(scenarios, path, jobs=1)) == list(whole)
    assert path.read_bytes() == (tmp_path / "whole.ndjson").read_bytes()


def test_a_retry_that_is_stopped_keeps_what_it_has_done(scenario: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, scenarios = tmp_path / "r.ndjson", many(scenario)
    whole = sweep(scenarios, tmp_path / "whole.ndjson", jobs=1)

    def moody(one: Asked) -> Result:
        raise SimulationError("not in the mood")

    monkeypatch.setattr("paceline.sweeping.simulating.simulate", moody)
    assert sweep(scenarios, path, jobs=1).failed == [0, 1, 2]
    monkeypatch.undo()

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(scenarios, path, jobs=1, retry_failed=True, progress=stop)
    assert read_results(path).failed == [2]
    assert sweep(scenarios, path, jobs=1).failed == [2]
    assert list(sweep(scenarios, path, jobs=1, retry_failed=True)) == list(whole)
    assert path.read_bytes() == (tmp_path / "whole.ndjson").read_bytes()


def test_stopped_right_behind_any_write_it_counts_what_is_there(scenario: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come between the writing of a line and the counting of it."""
    scenarios, put = many(scenario), os.write
    whole = sweep(scenarios, tmp_path / "whole.ndjson", jobs=1).path
    assert whole is not None
    for stopped_at in range(len(scenarios)):
        path, told, writes = tmp_path / f"{stopped_at}.ndjson", list[int](), count()

        def stop(file: int, data: bytes, at: int = stopped_at, writes: Iterator[int] = writes) -> int:
            size = put(file, data)
            if data.startswith(b'{"schema_version"') and next(writes) == at:
                raise KeyboardInterrupt
            return size

        monkeypatch.setattr(os, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            sweep(scenarios, path, jobs=1, progress=lambda done, _, told=told: told.append(done))
        monkeypatch.setattr(os, "write", put)
        assert told[-1] == stopped_at + 1
        assert sweep(scenarios, path, jobs=1).path == path
        assert path.read_bytes() == whole.read_bytes()


def test_stopped_twice_it_keeps_what_is_there(scenario: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C comes while the first one's count is made."""
    scenarios, path, write = many(scenario), tmp_path / "r.ndjson", Journal._write

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def stopped(file: Journal, line: Line) -> None:
        write(file, line)
        stop()

    monkeypatch.setattr(Journal, "_write", stopped)
    monkeypatch.setattr(Journal, "written", stop)
    with pytest.raises(KeyboardInterrupt):
        sweep(scenarios, path, jobs=1)
    monkeypatch.undo()
    assert len(path.read_text().splitlines()) == 1
    assert len(sweep(scenarios, path, jobs=1)) == len(scenarios)


def test_a_sweep_without_a_file_is_held(scenario: Build, tmp_path: Path) -> None:
    scenarios = many(scenario)
    held = sweep(scenarios, jobs=1)
    written = sweep(scenarios, tmp_path / "r.ndjson", jobs=1)
    assert held.path is None
    assert [outcome.to_json() for outcome in held] == (tmp_path / "r.ndjson").read_text().splitlines()
    assert list(held) == list(written)
    assert held[-1] == written[-1]
    assert held[1:] == written[1:]
    held.check()
    with pytest.raises(IndexError):
        written[3]


def test_lines_with_the_same_workload_share_it(scenario: Build, tmp_path: Path) -> None:
    scenarios = many(scenario, tuple(range(1, 9)))
    sweep(scenarios, tmp_path / "r.ndjson", jobs=1)
    results = read_results(tmp_path / "r.ndjson").results
    assert len({id(result.scenario.workload) for result in results}) == 1
    assert len({id(result.scenario.cluster) for result in results}) == 1
    lines = (tmp_path / "r.ndjson").read_text().splitlines()
    assert [result.to_json() for result in results] == lines
    # laid out otherwise, as by another program, they are read all the same
    spaced = tmp_path / "spaced.ndjson"
    bare = [without_checksum(line.encode()) for line in lines]
    spaced.write_text("".join(json.dumps(dict(reversed(json.loads(line).items()))) + "\n" for line in bare))
    assert read_results(spaced).results == results


def test_a_section_that_begins_like_another_is_told_apart(scenario: Build) -> None:
    one, other = (simulate(many(partial(scenario, workload={"name": name}))[0]) for name in ('a"}', 'a"}b'))
    for result in (one, other, one):
        assert outcome_of(result.to_json().encode()) == result


@pytest.mark.parametrize("cut", [-1, -2, -400, 900, 60])
def test_a_file_cut_anywhere_is_read_up_to_the_cut(scenario: Build, tmp_path: Path, cut: int) -> None:
    lines = [simulate(one).to_json().encode() for one in many(partial(scenario, workload={"name": "größer ☃" * 40}))]
    file = tmp_path / "r.ndjson"
    begin = 45 + lines[1].index("☃".encode()) if cut == 900 else cut
    for more in range(3):  # within a letter of three bytes too
        file.write_bytes(lines[0] + b"\n" + lines[1][: begin + more if cut == 900 else begin])
        read = read_results(file)
        assert len(read.results) == 1
        assert "ends in the middle of line 2" in read.notes[0]
        assert len(outcomes_in(file)) == 1


def test_a_file_of_failures_only_tells_why(scenario: Build, tmp_path: Path) -> None:
    sweep(failing(scenario)[1:2], tmp_path / "r.ndjson", jobs=1)
    with pytest.raises(ResultsError, match=r"r.ndjson: has no result: 1 of 1 scenarios failed: .*check the times"):
        read_results(tmp_path / "r.ndjson")


def test_a_runner_reads_no_more_scenarios_than_it_must(scenario: Build) -> None:
    asked = 0

    def endless() -> Iterator[Scenario]:
        nonlocal asked
        one = many(scenario, (1,))[0]
        while True:
            asked += 1
            yield one

    outcomes = Runner(jobs=1).completed(endless())
    next(outcomes)
    outcomes.close()
    assert asked <= 64


def test_a_bug_is_no_failure(scenario: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(one: Scenario) -> Result:
        raise ZeroDivisionError

    monkeypatch.setattr("paceline.sweeping.simulating.simulate", broken)
    with pytest.raises(ZeroDivisionError):
        sweep(many(scenario), tmp_path / "r.ndjson", jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_runners_refuse_what_does_not_fit() -> None:
    for options, message in (
        ({"scheduler": "tcp://a:1"}, "give `backend='dask'`"),
        ({"backend": "dask"}, "address of its scheduler"),
        ({"backend": "dask", "scheduler": "http://a:1"}, "address of its scheduler"),
        ({"backend": "ray", "scheduler": "tcp://a:1"}, "ray://host:port"),
    ):
        with pytest.raises(InputError, match=message):
            Runner(**options)


def test_a_line_of_an_earlier_version_with_its_time_is_read(scenario: Build, tmp_path: Path) -> None:
    scenarios, path = many(scenario), tmp_path / "r.ndjson"
    first = simulate(scenarios[0])
    timed = without_checksum(first.to_json().encode()).decode().removesuffix("}") + ',"wall_time_s":1.5}'
    path.write_text(with_checksum(timed) + "\n")
    swept = sweep(scenarios, path, jobs=1)
    assert [outcome.scenario for outcome in swept] == scenarios
    assert swept[0] == first
