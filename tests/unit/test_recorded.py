"""Recorded runs: each kind of file is read, what is wrong with one is told in one line, and what grows is read once."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.recorded import steps_file
from calibrate.recorded.log import Log, compiled
from calibrate.recorded.reading import read_recorded, reader_of
from calibrate.recorded.run import RecordedRun
from calibrate.recorded.steps_file import StepsFile
from calibrate.recorded.table import StepsTable
from simulator.base.errors import InputError
from simulator.observing.tensorboard import ScalarFiles

HEADER = {"kind": "header", "format": "paceline-steps", "schema_version": 1, "workers": 1, "batch": 32, "hostname": "here", "cores": 4}


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def step(number: int, duration_s: float = 0.1, between_s: float = 0.01, **more: Any) -> dict[str, Any]:
    return {"kind": "step", "step": number, "end_s": number * 0.11, "duration_s": duration_s, "between_s": between_s, **more}


def one(path: Path, **options: Any) -> RecordedRun:
    (run,) = read_recorded([path], **options)
    return run


# -- the callback's file


def test_a_steps_file_has_steps_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    mark = {"kind": "mark", "what": "checkpoint", "end_s": 0.3, "duration_s": 2.0}
    path.write_text(
        lines(HEADER, step(1), step(2, cpu_s=0.2, sent_bytes=100, received_bytes=50), mark, step(3), {"kind": "end", "end_s": 1})
    )
    run = one(path)
    assert run.steps.tolist() == [1, 2, 3]
    assert np.allclose(run.duration_s, [0.1, 0.11, 0.1])  # what lies before the first and behind a mark is no part of a step
    assert (run.cpu_s[1], run.sent_bytes[1], run.received_bytes[1]) == (0.2, 100, 50)
    assert math.isnan(run.cpu_s[0])
    assert [(mark.what, mark.row, mark.duration_s) for mark in run.marks] == [("checkpoint", 2, 2.0)]
    assert (run.ended, run.facts.batch, run.facts.hostname, run.facts.cores, run.worker) == (True, 32, "here", 4, "")


def test_several_steps_of_one_call_are_a_row_of_their_mean(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    path.write_text(lines(HEADER, step(10, 1.0, 0.0, steps=10, cpu_s=3.0)))
    run = one(path)
    assert (run.counts.tolist(), run.duration_s.tolist(), run.cpu_s.tolist()) == ([10], [0.1], [0.3])


def test_a_training_that_was_killed_and_goes_on_is_one_run(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    path.write_text(lines(HEADER, step(1), step(2)) + '{"kind": "step", "st\n' + lines(HEADER, step(2), step(3)))
    run = one(path)
    assert run.steps.tolist() == [1, 2, 2, 3]
    assert [(mark.what, mark.row) for mark in run.marks] == [("restart", 2)]
    (remark,) = run.remarks
    assert remark.startswith("line 4 ")


def test_a_file_that_grows_is_read_once_and_a_line_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    path.write_text(lines(HEADER, step(1)) + '{"kind": "step", "step": 2, "end')
    reader = StepsFile(path)
    reader.more()
    assert len(reader.runs()[0]) == 1
    with path.open("a") as file:
        file.write('_s": 0.2, "duration_s": 0.1}\n' + lines(step(3)))
    reader.more()
    reader.more()
    assert reader.runs()[0].steps.tolist() == [1, 2, 3]
    path.write_text(lines(HEADER))
    with pytest.raises(InputError, match="shorter"):
        reader.more()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (lines(step(1)), r"run.ndjson:1: .*header"),
        (lines({**HEADER, "schema_version": 2}), r"schema_version: paceline-steps 2 .* 1"),
        (lines(HEADER) + "not json\n" + lines(step(1)), r"run.ndjson:2: is no JSON"),
        (lines(HEADER, {"kind": "step", "step": 1, "end_s": 1}), r"run.ndjson:2: duration_s: is missing"),
        (lines(HEADER, step(1) | {"step": "x"}), r"run.ndjson:2: step: 'x'"),
        (lines(HEADER, {"kind": "other"}), r"run.ndjson:2: "),
        (lines(HEADER), r"holds no steps yet"),
        ("", r"is empty"),
        ('{"kind": "header", "probe": "step"}\n', r"file of measurements"),
    ],
)
def test_what_is_wrong_with_a_steps_file_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "run.ndjson"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        read_recorded([path])
    assert "\n" not in str(raised.value)


def test_reader_and_callback_know_the_same_format() -> None:
    """The callback imports nothing of the calibrator's, and Keras; so its constants are read, not imported."""
    tree = ast.parse((Path(__file__).parents[2] / "paceline" / "keras_callback.py").read_text())
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert (constants["FORMAT"], constants["SCHEMA_VERSION"]) == (steps_file.FORMAT, steps_file.SCHEMA_VERSION)


# -- tables


def test_a_table_of_steps_by_worker(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("step;worker;step_time_ms;cpu_s\n1;a;100;0.5\n1;b;120;\n\n# a remark\n2;a;110;0.6\n")
    first, second = read_recorded([path])
    assert (first.worker, first.steps.tolist(), second.worker, second.steps.tolist()) == ("a", [1, 2], "b", [1])
    assert np.allclose(first.duration_s, [0.1, 0.11])
    assert first.cpu_s.tolist() == [0.5, 0.6]
    assert math.isnan(second.cpu_s[0])


@pytest.mark.parametrize(
    ("column", "values", "samples"), [("step_time_s", "0.5\n0.25", None), ("steps_per_s", "2\n4", None), ("throughput", "64\n128", 32)]
)
def test_the_column_says_the_unit(tmp_path: Path, column: str, values: str, samples: int | None) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(f"{column}\n{values}\n")
    run = one(path, samples=samples)
    assert (run.steps.tolist(), run.duration_s.tolist()) == ([1, 2], [0.5, 0.25])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.1\n0.2\n", r"x.csv:1: .*step_time_s or step_time_ms"),
        ("step\n1\n", r"no time of a step"),
        ("step,time\n1,2\n", r"the column time: .*step_time_s or step_time_ms"),
        ("step,step_tme_s\n1,2\n", r"'step_tme_s' .*step_time_s"),
        ("step_time_s,step_time_ms\n1,2\n", r"step_time_s and step_time_ms"),
        ("step,step,step_time_s\n1,1,2\n", r"the column step twice"),
        ("throughput\n12\n", r"samples of a step"),
        ("workers,batch,throughput\n1,2,3\n", r"paceline validate --measured"),
        ("step,step_time_s\n1\n", r"x.csv:2: has 1 values.* 2 columns"),
        ("step,step_time_s\n1,fast\n", r"x.csv:2: step_time_s: 'fast'"),
        ("step,step_time_s\n1.5,1\n", r"x.csv:2: step: 1.5"),
        ("step,step_time_s\n1,1e999\n", r"must be finite"),
        ("step,step_time_s\n", r"holds no steps yet"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        read_recorded([path])
    assert "\n" not in str(raised.value)


def test_times_that_are_none_are_kept_for_the_analysis_to_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("step_time_s\n-1\n0\n0.1\n")
    assert one(path).duration_s.tolist() == [-1, 0, 0.1]


# -- logs

CNN = """Batch size:  64 global
Running warm up
Step\tImg/sec\ttotal_loss
1\timages/sec: 64.0 +/- 0.0 (jitter = 0.0)\t7.1
10\timages/sec: 128.0 +/- 1.0 (jitter = 2.0)\t7.0
20\timages/sec: 85.333333 +/- 1.0 (jitter = 2.0)\t7.0
----------------------------------------------------------------
total images/sec: 85.33
"""


def test_tf_cnn_benchmarks_prints_means_since_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(CNN)
    run = one(path)
    assert (run.steps.tolist(), run.counts.tolist(), run.facts.batch) == ([1, 10, 20], [1, 9, 10], 64)
    # sums of 1, 5 and 15 seconds
    assert np.allclose(run.duration_s, [1.0, 4 / 9, 1.0], rtol=1e-6)


def test_estimators_log_rates_over_some_steps(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(
        "INFO:tensorflow:loss = 2.3, step = 0\n"
        "INFO:tensorflow:global_step/sec: 10\nINFO:tensorflow:loss = 1, step = 100 (10.0 sec)\n"
        "INFO:tensorflow:global_step/sec: 12.5; loss = 1, step = 200\n"
    )
    run = one(path)
    assert (run.each, run.duration_s.tolist()) == ("interval", [0.1, 0.08])


BAR = "\x1b[1m{at:3d}/100\x1b[0m \x1b[32m━━\x1b[0m \x1b[1m0s\x1b[0m {ms}ms/step - loss: 0.5{more}\x08\x08\x08"


def test_the_progress_bar_of_keras_tells_means_of_an_epoch(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    bar = [BAR.format(at=at, ms=ms, more="") for at, ms in ((1, 900), (51, 400), (100, 600))]
    path.write_text(
        "Epoch 1/2\n" + "\r".join(bar) + "\r" + BAR.format(at=100, ms=999, more=" - val_loss: 1") + "\nEpoch 2/2\n" + bar[1] + "\n"
    )
    run = one(path)
    # the first step is not in the mean: 50 steps of 400 ms, and 49 more so that all 99 have the mean 600 ms; the evaluation is left out
    assert (run.steps.tolist(), run.counts.tolist()) == ([51, 100, 51], [50, 49, 50])
    assert np.allclose(run.duration_s, [0.4, (0.6 * 99 - 0.4 * 50) / 49, 0.4])
    assert [(mark.what, mark.row) for mark in run.marks] == [("epoch", 2)]


def test_a_rounded_progress_bar_gives_what_it_knows(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("\r".join(BAR.format(at=at, ms=7, more="") for at in (1, 20, 40, 60, 80, 100)) + "\n")
    run = one(path)
    assert (run.counts.tolist(), run.duration_s.tolist()) == ([99], [pytest.approx(0.007)])
    (remark,) = run.remarks
    assert remark.endswith(" 14%")


def test_a_pattern_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("hello\n[17] took 120 ms\nnoise\n[18] took 130 ms\n")
    run = one(path, pattern=r"\[(?P<step>\d+)\] took (?P<time_ms>[\d.]+) ms")
    assert (run.steps.tolist(), run.duration_s.tolist(), run.each) == ([17, 18], [0.12, 0.13], "step")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", r"`pattern`: '\('"),
        ("took .* s", r"no named group"),
        ("(?P<time_s>a)(?P<rate>b)", r"time_s and rate"),
        ("(?P<seconds>a)", r"group seconds"),
    ],
)
def test_a_pattern_that_cannot_tell_steps_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        compiled(pattern)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("hello\nworld\n", {}, r"none of its 2 lines .*pattern"),
        ("took x s\n", {"pattern": "took (?P<time_s>.*) s"}, r"log.txt:1: time_s: 'x'"),
        ("1\timages/sec: 64.0 +/- 0.0\n", {}, r"samples of a step"),
        ("a\0b", {}, r"is no text"),
    ],
)
def test_what_is_wrong_with_a_log_is_told_in_one_line(tmp_path: Path, text: str, options: dict[str, Any], said: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        read_recorded([path], **options)
    assert "\n" not in str(raised.value)


# -- event files


def events(folder: Path, tag: str, points: list[tuple[float, int, float]]) -> Path:
    ScalarFiles(folder).write("run", [(at_s, number, {tag: value}) for at_s, number, value in points])
    return folder


def test_scalars_that_tell_steps_per_second(tmp_path: Path) -> None:
    run = one(events(tmp_path, "batch_steps_per_second", [(1.0, 1, 2.0), (2.0, 2, 4.0)]))
    assert (run.kind, run.each, run.steps.tolist(), run.duration_s.tolist()) == ("event files", "step", [1, 2], [0.5, 0.25])


def test_rates_of_epochs_are_means_of_epochs(tmp_path: Path) -> None:
    run = one(events(tmp_path, "epoch_steps_per_second", [(1.0, 0, 2.0), (2.0, 1, 4.0)]))
    assert (run.each, run.duration_s.tolist()) == ("epoch", [0.5, 0.25])


def test_wall_times_where_nothing_else_tells(tmp_path: Path) -> None:
    run = one(events(tmp_path, "batch_loss", [(10.0, 1, 3.0), (10.5, 2, 2.0), (12.5, 6, 2.0), (11.5, 7, 2.0)]))
    assert (run.steps.tolist(), run.counts.tolist(), run.duration_s.tolist()) == ([2, 6, 7], [1, 4, 1], [0.5, 0.5, -1.0])
    assert "no scalar tells steps/s" in run.remarks[0]


def test_losses_of_epochs_tell_no_steps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(epoch_loss\)"):
        read_recorded([events(tmp_path, "epoch_loss", [(1.0, 0, 2.0), (2.0, 1, 4.0)])])


def test_event_files_are_read_as_they_grow_and_damage_is_told(tmp_path: Path) -> None:
    whole = events(tmp_path / "whole", "batch_steps_per_second", [(float(at), at, 2.0) for at in range(1, 9)])
    (file,) = whole.rglob("*tfevents*")
    content = file.read_bytes()
    copy = tmp_path / "copy.tfevents"
    copy.write_bytes(content[:200])
    reader = reader_of(copy)
    reader.more()
    some = len(reader.runs()[0])
    copy.write_bytes(content)
    reader.more()
    assert 0 < some < len(reader.runs()[0]) == 8
    broken = bytearray(content)
    broken[100] ^= 1
    copy.write_bytes(bytes(broken))
    with pytest.raises(InputError, match="check sum"):
        read_recorded([copy])


def test_folders_without_steps_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder without"):
        read_recorded([tmp_path])
    with pytest.raises(InputError, match="no such file"):
        read_recorded([tmp_path / "none.csv"])
    with pytest.raises(InputError, match=r"`pattern`: .* no log"):
        read_recorded([tmp_path], pattern="(?P<rate>x)")


def test_what_reads_a_file_follows_from_its_content(tmp_path: Path) -> None:
    for text, kind in ((lines(HEADER), StepsFile), ("step\tstep_time_s\n", StepsTable), ("step 5 took 3 s, loss 4\n", Log)):
        (tmp_path / "file").write_text(text)
        assert isinstance(reader_of(tmp_path / "file"), kind)


def test_part_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    path.write_text(lines(HEADER, step(1), step(2), {"kind": "mark", "what": "epoch"}, step(3), step(4)))
    part = one(path).part(slice(1, 3))
    assert part.steps.tolist() == [2, 3]
    assert [(mark.what, mark.row) for mark in part.marks] == [("epoch", 1)]
