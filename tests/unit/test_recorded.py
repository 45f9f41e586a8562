"""Recorded runs: each kind of file is read, what is wrong with one is told in one line, and what grows is read once."""

from __future__ import annotations

import ast
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.recorded import rows
from calibrate.recorded.log import Log
from calibrate.recorded.log_formats import compiled
from calibrate.recorded.reading import read_recorded, reader_of
from calibrate.recorded.rows import StepsFile, StepsTable
from calibrate.recorded.run import Facts, Growing, RecordedRun
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


@pytest.mark.parametrize("number", [10**12 + 1, 2**63, 10**30, -(2**63) - 1])
@pytest.mark.parametrize("key", ["step", "steps"])
def test_a_step_number_that_no_training_reaches_is_refused(tmp_path: Path, key: str, number: int) -> None:
    path = tmp_path / "run.ndjson"
    path.write_text(lines(HEADER, step(1), {**step(2), key: number}))
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}:3: {key}: "):
        one(path)
    path.write_text(f"step,step_time_s\n1,0.1\n{number},0.1\n")
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}:3: step: "):
        one(path)
    path.write_text(f"step 1 0.1\nstep {number} 0.1\n")
    with pytest.raises(InputError, match=rf"^{re.escape(str(path))}"):
        one(path, pattern=r"step (?P<step>\S+) (?P<time_s>\S+)")


def test_a_row_has_no_figures_but_those_of_rows() -> None:
    growing = Growing("run.ndjson", "steps file")
    with pytest.raises(TypeError, match="a row has no compute"):
        growing.add(1, 0.1, compute=0.05)
    assert len(growing) == 0


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
        (lines(HEADER) + "not json\n" + lines(step(1)), r"run.ndjson:2: is not JSON"),
        (lines(HEADER, {"kind": "step", "step": 1, "end_s": 1}), r"run.ndjson:2: duration_s: is missing"),
        (lines(HEADER, step(1) | {"step": "x"}), r"run.ndjson:2: step: 'x'"),
        (lines(HEADER, {"kind": "other"}), r"run.ndjson:2: "),
        (lines(HEADER), r"has no steps yet"),
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
    assert (constants["FORMAT"], constants["SCHEMA_VERSION"]) == (rows.FORMAT, rows.SCHEMA_VERSION)


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
        ("throughput\n12\n", r"samples per step"),
        ("epoch,loss,accuracy\n0,1,1\n", r"CSVLogger has no times; add paceline.keras_callback.RecordSteps"),
        ("epoch,step,train_loss\n0,1,1\n", r"Lightning's CSVLogger has no times here"),
        ("workers,batch,throughput\n1,2,3\n", r"paceline validate --measured"),
        ("step,step_time_s\n1\n", r"x.csv:2: has 1 values.* 2 columns"),
        ("step,step_time_s\n1,fast\n", r"x.csv:2: step_time_s: 'fast'"),
        ("step,step_time_s\n1.5,1\n", r"x.csv:2: step: 1.5"),
        ("step,step_time_s\n1,1e999\n", r"must be at most 1e\+15"),
        ("step,step_time_s\n", r"has no steps yet"),
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
    assert (run.steps.tolist(), run.counts.tolist(), run.facts.global_batch) == ([1, 10, 20], [1, 9, 10], 64)
    assert (run.facts.batch, run.facts.workers) == (None, None)  # of one worker nothing is said
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
        ("1\timages/sec: 64.0 +/- 0.0\n", {}, r"samples per step"),
        ("a\0b", {}, r"is not text"),
    ],
)
def test_what_is_wrong_with_a_log_is_told_in_one_line(tmp_path: Path, text: str, options: dict[str, Any], said: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        read_recorded([path], **options)
    assert "\n" not in str(raised.value)


# -- what launchers put before lines, and several runs in one file


def cnn(each: int, devices: str, speed: float, step: int = 10, last: int = 40) -> list[str]:
    """Lines of tf_cnn_benchmarks: some devices, each of a batch, and images/s of one process."""
    head = ["TensorFlow:  1.15", "Model:       resnet50", "SingleSess:  False", f"Batch size:  {each * devices.count(':')} global"]
    head += [f"             {each} per device", f"Devices:     {devices}", "Variables:   parameter_server", "Step\tImg/sec\ttotal_loss"]
    return [*head, *(f"{at}\timages/sec: {speed} +/- 0.3 (jitter = 2.2)\t7.0" for at in range(step, last + 1, step))]


ONE_GPU = "['/gpu:0']"
TWO_RANKS = "['horovod/gpu:0', 'horovod/gpu:1']"


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("[1,{}]<stdout>:", ("0", "1")),
        ("{}: ", ("0", "1")),
        ("[rank{}]: ", ("0", "1")),
        ("[default{}]:", ("0", "1")),
        ("worker-{}: ", ("worker-0", "worker-1")),
        ("trainer-{}  | ", ("trainer-0", "trainer-1")),
        ("2024-05-01T12:00:00.123456789Z [1,{}]<stdout>:", ("0", "1")),
        ("worker-7: [rank{}]:", ("0", "1")),
    ],
)
def test_ranks_in_one_log_are_told_apart(tmp_path: Path, before: str, names: tuple[str, str]) -> None:
    path = tmp_path / "log.txt"
    ranks = [cnn(32, TWO_RANKS, 46.376812), cnn(32, TWO_RANKS, 47.761194)]
    path.write_text("".join(f"{before.format(rank)}{line}\n" for pair in zip(*ranks, strict=True) for rank, line in enumerate(pair)))
    first, second = read_recorded([path])
    assert (first.worker, second.worker) == names
    assert np.allclose(first.duration_s, 0.690)
    assert np.allclose(second.duration_s, 0.670)
    assert first.facts == Facts(batch=32, global_batch=64, devices_in_all=2, model="resnet50")


def test_a_time_before_lines_is_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("".join(f"2024-05-01T12:00:00.123456789Z {line}\n" for line in cnn(32, ONE_GPU, 64.0)))
    assert (one(path).worker, np.allclose(one(path).duration_s, 0.5)) == ("", True)


def test_a_number_that_a_users_pattern_takes_is_no_rank(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("17: 120 ms\n18: 130 ms\n")
    assert one(path, pattern=r"(?P<time_ms>\d+) ms").duration_s.tolist() == [0.12, 0.13]
    path.write_text("[rank0]: 17: 120 ms\n[rank1]: 17: 130 ms\n")
    assert [run.worker for run in read_recorded([path], pattern=r"(?P<step>\d+): (?P<time_ms>\d+) ms")] == ["0", "1"]


def test_ranks_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    ranks = [cnn(32, TWO_RANKS, 46.4), cnn(32, TWO_RANKS, 47.8)]
    path.write_text("".join(f"{line}\n" for pair in zip(*ranks, strict=True) for line in pair))
    with pytest.raises(InputError, match=r"repeats steps such as 10 several times in turn, as if several processes"):
        read_recorded([path])
    path.write_text("".join(f"step {at} took 1 s\n" for at in (1, 2, 1, 2, 3, 4, 3, 4, 5, 6, 5, 6, 7, 7, 8, 8)))
    with pytest.raises(InputError, match="as if several processes"):
        read_recorded([path], pattern=r"step (?P<step>\d+) took (?P<time_s>\d+) s")


def test_runs_one_after_the_other_are_told_apart_and_chosen(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(line for turn in range(12) for line in cnn(32 if turn % 2 else 64, ONE_GPU, 64.0)) + "\n")
    with pytest.raises(InputError, match=r"has 12 runs: .*log.txt#12: run 1: 40 steps, global batch 64, resnet50; run 2: 40 steps, .*32"):
        read_recorded([path])
    second = one(Path(f"{path}#2"))
    assert (second.source, second.facts.batch) == (f"{path}#2", 32)
    assert np.allclose(second.duration_s, 0.5)
    with pytest.raises(InputError, match=r"log.txt#13: no such run; the file has 12 runs"):
        read_recorded([f"{path}#13"])
    with pytest.raises(InputError, match="no such file"):
        read_recorded([tmp_path / "other.txt#1"])
    (tmp_path / "x.csv").write_text("step_time_s\n1\n")
    with pytest.raises(InputError, match="only a log can have several"):
        read_recorded([tmp_path / "x.csv#1"])
    path.rename(tmp_path / "log#2")
    with pytest.raises(InputError, match="log#2: has 12 runs"):
        read_recorded([tmp_path / "log#2"])


MEGATRON = (
    " [2025-05-27 15:23:07] iteration {at:8d}/     100 | consumed samples: 640 | elapsed time per iteration (ms): 1234.5 | "
    "learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.2E+01 |\n"
)
ARGUMENTS = "------------ arguments ------------\n  params_dtype .......... torch.bfloat16\nusing world size: 8, data-parallel-size: 2\n"


def test_a_training_that_goes_on_from_a_checkpoint_is_one_run(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    starts = [ARGUMENTS + "".join(MEGATRON.format(at=at) for at in steps) for steps in ((10, 20, 30), (30, 40), (50, 60))]
    path.write_text("".join(starts))
    run = one(path)
    assert run.steps.tolist() == [10, 20, 30, 30, 40, 50, 60]
    assert [(mark.what, mark.row) for mark in run.marks] == [("restart", 3), ("restart", 5)]
    assert (run.facts.global_batch, run.facts.devices_in_all, run.facts.precision) == (64, 8, "bfloat16")
    path.write_text(starts[0] + starts[0])
    with pytest.raises(InputError, match="has 2 runs"):
        read_recorded([path])


def test_the_logs_own_batch_counts_not_the_scenarios(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("Batch size:  32 global\n             32 per device\n10\timages/sec: 47.5 +/- 0.3 (jitter = 2.2)\n")
    assert one(path, samples=64).duration_s[0] == pytest.approx(0.674, abs=5e-4)
    path.write_text("\n".join(cnn(32, "['/gpu:0', '/gpu:1']", 64.0)) + "\n")  # one process has both devices
    assert one(path, samples=32).duration_s[0] == pytest.approx(1.0)


# -- formats of programs


def ms_bar(step: int, ms: int, steps: int = 160) -> str:
    return f"{step:3d}/{steps} [==>...] - ETA: 1s - loss: 0.5 - {ms}ms/step"


@pytest.mark.parametrize("between", ["\r", "\x08" * 60 + "\r", "\x08" * 60, "\n"], ids=["returns", "both", "backspaces", "lines"])
@pytest.mark.parametrize(("ms", "rows"), [(7, 1), (25, 1), (100, 7), (900, 32)])
def test_a_progress_bar_is_read_to_its_last_step(tmp_path: Path, between: str, ms: int, rows: int) -> None:
    path = tmp_path / "log.txt"
    bars = between.join(ms_bar(step, ms) for step in (*range(1, 160, 3), 160))
    path.write_text(f"Epoch 1/2\n{bars}\nEpoch 2/2\n{bars}\n")
    run = one(path)
    assert (len(run), run.steps[rows - 1], run.steps[-1], run.counts.sum()) == (2 * rows, 160, 160, 2 * 159)
    assert np.allclose(run.duration_s, ms * 1e-3)
    assert [(mark.what, mark.row) for mark in run.marks] == [("epoch", rows)]


def test_a_progress_bar_that_grows_is_at_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{ms_bar(20, 25)}\r{ms_bar(38, 25)}\r")
    reader = reader_of(path)
    seen = []
    for step in (90, 160):
        reader.more()
        seen.append((reader.runs()[0].steps.tolist(), reader.runs()[0].counts.tolist()))
        with path.open("a") as file:
            file.write(f"{ms_bar(step, 25)}\r")
    reader.more()
    assert [*seen, (reader.runs()[0].steps.tolist(), reader.runs()[0].counts.tolist())] == [([38], [37]), ([90], [89]), ([160], [159])]


def test_numbers_that_are_none_of_steps_are_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    for line in (
        f"{'9' * 400}\timages/sec: 1 +/- 0",
        f"{'9' * 30}/9 - 3s 1ms/step",
        "TimeHistory: 0.0 seconds, 0.0 examples/second between steps 5 and 5",
    ):
        path.write_text(f"Batch size:  32 global\n{line}\n")
        with pytest.raises(InputError, match=r"^\S*log.txt.*") as raised:
            read_recorded([path])
        assert "\n" not in str(raised.value)


def test_the_last_line_of_a_bar_with_an_evaluation_has_the_last_step_and_no_time(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{ms_bar(20, 25)}\r{ms_bar(157, 25)}\r160/160 - 9s - 55ms/step - loss: 0.5 - val_loss: 1\n".replace("- 9s -", "9s"))
    assert (one(path).steps.tolist(), one(path).counts.tolist(), one(path).duration_s.tolist()) == ([160], [156], [pytest.approx(0.025)])


def mllog(time_ms: int, key: str, value: object = None, **metadata: object) -> str:
    data = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value, "metadata": metadata}
    return f":::MLLOG {json.dumps(data)}\n"


FAIRSEQ = '"wps": "4000", "ups": "2.5", "wpb": "1600", "bsz": "32", "num_updates": "{at}"}}\n'
TIMES: dict[str, tuple[str, list[int], list[int], list[float], Facts]] = {
    "Keras 2, verbose=2": (
        "Epoch 1/2\n10/10 - 3s - loss: 0.5 - 3s/epoch - 300ms/step\nEpoch 2/2\n10/10 - 2s - loss: 0.5 - 2s/epoch - 200ms/step\n",
        [10, 20], [10, 10], [0.3, 0.2], Facts(),
    ),
    "Keras 3, verbose=2": (
        'Model: "net"\n Trainable params: 1,234 (4.8 KB)\nEpoch 1/1\n10/10 - 3s - 300ms/step - loss: 0.5\n',
        [10], [10], [0.3], Facts(model="net", parameters=1234),
    ),
    "Keras of TensorFlow 2.0": ("10/10 - 3s - loss: 0.5\n", [10], [10], [0.3], Facts()),
    "Keras before, with the number of steps": ("Train for 10 steps\nEpoch 1/1\n - 3s - loss: 0.5\n", [10], [10], [0.3], Facts()),
    "TimeHistory": (
        "I0501 keras_utils.py:145] TimeHistory: 12.34 seconds, 830.12 examples/second between steps 0 and 100\n",
        [100], [100], [0.1234], Facts(global_batch=102),
    ),
    "BenchmarkMetric": (
        "BenchmarkMetric: {'global step':100, 'time_taken': 12.3,'examples_per_second': 830.1}\n"
        "BenchmarkMetric: {'global step':150, 'time_taken': 6.15,'examples_per_second': 829.3}\n",
        [100, 150], [100, 50], [0.123, 0.123], Facts(global_batch=102),
    ),
    "time_taken of a step": (
        "".join(f"step = {at}, time_taken = 0.309579, examples_per_second = 3307.7\n" for at in (45, 90)),
        [45, 90], [1, 1], [0.309579] * 2, Facts(global_batch=1024),
    ),
    "tf.estimator, steps between": (
        "INFO:tensorflow:loss = 2.3, step = 1\nINFO:tensorflow:global_step/sec: 10\nINFO:tensorflow:loss = 1, step = 101 (10.0 sec)\n",
        [101], [100], [0.1], Facts(),
    ),
    "tf.estimator, loss alone": ("loss = 2.3, step = 1\nloss = 0.5, step = 101 (9.8 sec)\n", [101], [100], [0.098], Facts()),
    "tf_cnn_benchmarks": (
        "run with --use_fp16\nBatch size:  32 global\n10\timages/sec: 64 +/- 0.3\n",
        [10], [10], [0.5], Facts(global_batch=32, precision="float16"),
    ),
    "Megatron-LM": (MEGATRON.format(at=10) + MEGATRON.format(at=20), [10, 20], [1, 10], [1.2345] * 2, Facts(global_batch=64)),
    "fairseq": (
        "training on 8 devices (GPUs/TPUs)\n"
        "2024-01-01 12:00:00 | INFO | train_inner | epoch 001:    100 / 1102 loss=8.1, "
        "wps=4000, ups=2.5, wpb=1600, bsz=32, num_updates=100\n"
        "2024-01-01 12:00:00 | INFO | train | epoch 001 | loss 8.1 | ups 9 | bsz 32 | num_updates 1102\n",
        [100], [1], [0.4], Facts(global_batch=32, devices_in_all=8),
    ),
    "fairseq, JSON": ('| INFO | train_inner | {"epoch": 1, ' + FAIRSEQ.format(at=100), [100], [1], [0.4], Facts(global_batch=32)),
    "fairseq, JSON alone": ('{"epoch": 1, ' + FAIRSEQ.format(at=7), [7], [1], [0.4], Facts(global_batch=32)),
    "fairseq, epochs": (
        "| train | epoch 001 | ups 2.5 | num_updates 50\n| train | epoch 002 | ups 2 | num_updates 90\n",
        [50, 90], [50, 40], [0.4, 0.5], Facts(),
    ),
    "DLRM": (
        "".join(f"Finished training it {at}/2048 of epoch 0, 12.34 ms/it, loss 0.5\n" for at in (1024, 2048)),
        [1024, 2048], [1, 1024], [0.01234] * 2, Facts(),
    ),
    "MLPerf, throughput": (
        mllog(0, "global_batch_size", 384) + mllog(1, "tracked_stats", {"throughput": 192.0}, step=3840) + mllog(2, "throughput", 384.0),
        [1, 2], [1, 1], [2.0, 1.0], Facts(global_batch=384),
    ),
    "MLPerf, blocks": (
        mllog(0, "global_batch_size", 384) + mllog(2, "block_start", samples_count=0) + mllog(20_002, "block_stop", samples_count=3840),
        [10], [10], [2.0], Facts(global_batch=384),
    ),
    "MLPerf, epochs": (
        mllog(0, "global_batch_size", 100) + mllog(0, "train_samples", 1000)
        + mllog(2, "block_start", epoch_count=2) + mllog(20_002, "block_stop"),
        [20], [20], [1.0], Facts(global_batch=100),
    ),
    "Hugging Face": (
        "{'loss': 0.5, 'epoch': 0.5}\n"
        "{'train_runtime': 120.0, 'train_samples_per_second': 80.0, 'train_steps_per_second': 2.5, 'train_loss': 0.5, 'epoch': 3.0}\n",
        [300], [300], [0.4], Facts(global_batch=32),
    ),
    "trainer_state.json": (
        json.dumps({"global_step": 300, "log_history": [
            {"loss": 1, "step": 100},
            {"step": 300, "train_runtime": 120.0, "train_samples_per_second": 80.0, "train_steps_per_second": 2.5},
        ]}, indent=1),
        [300], [300], [0.4], Facts(global_batch=32),
    ),
    "PyTorch's profiler": (
        json.dumps({
            "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A100"}],
            "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2},
            "traceEvents": [
                {"ph": "X", "cat": cat, "name": f"ProfilerStep#{at}", "pid": 1, "tid": 1, "ts": at * 1000.0, "dur": 990.5}
                for at in (5, 6) for cat in ("user_annotation", "gpu_user_annotation")
            ],
        }, indent=2),
        [5, 6], [1, 1], [1e-3, 0.9905e-3], Facts(devices_in_all=2, devices=("A100",)),
    ),
    "Horovod's timeline, cut off": (
        '[\n{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad/a"}},\n'
        + "".join(f'{{"name": "ALLREDUCE", "ph": "B", "pid": 1, "ts": {at * 500_000}}},\n' for at in range(3)),
        [1, 2], [1, 1], [0.5, 0.5], Facts(),
    ),
    "Lightning, batches_per_sec": (
        "epoch,step,train/device/batches_per_sec,train_loss\n0,49,2.0,\n0,49,,0.4\n0,99,4.0,\n", [49, 99], [1, 50], [0.5, 0.25], Facts(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", TIMES)
def test_formats_of_programs(tmp_path: Path, program: str) -> None:
    text, steps, counts, durations_s, facts = TIMES[program]
    path = tmp_path / "file"
    path.write_text(text)
    run = one(path)
    assert (run.steps.tolist(), run.counts.tolist(), run.facts) == (steps, counts, facts)
    assert run.duration_s.tolist() == pytest.approx(durations_s)


NO_TIMES = {
    "Keras before": (" - 3s - loss: 0.5\n", r"without the number of steps; add paceline.keras_callback.RecordSteps"),
    "Keras, samples": ("Train on 600 samples\n600/600 [===] - 3s 50us/step - loss: 0.5\n", r"counts samples, not steps; .*RecordSteps"),
    "MLPerf": (mllog(2, "block_start") + mllog(9, "block_stop"), r"MLPerf's blocks .*global_batch_size"),
    "Hugging Face": ("{'loss': 0.5, 'epoch': 0.5}\n", r"no times before its last line \(train_runtime\)"),
    "trainer_state.json": ('{"log_history": [{"loss": 1}]}', r"no times before training ends \(train_runtime\)"),
    "a trace without steps": ('{"traceEvents": [{"ph": "X", "name": "a"}]}', r"without marked steps; .*ProfilerStep#N"),
    "a damaged trace": ('{"traceEvents": [{"ph": "X", "name": "ProfilerStep#1"}]}', r"is damaged"),
    "cut off": ('{"traceEvents": [{"ph": ', r"begins like JSON but is not valid JSON"),
    "any JSON": ('{"a": 1}', r"is JSON but not a record of steps; known are .*RecordSteps"),
    "a list": ('[\n{"a": 1}\n]', r"is JSON but not a record of steps"),
    "Keras' model": ('{\n"class_name": "Sequential", "config": {}}', r"is the configuration of a Keras model"),
    "package.json": ('{\n"name": "x", "scripts": {"a": "b"}}', r"is JSON but not a record of steps"),
    "results": ('{"scenario_hash": "0"}\n', r"is a results file"),
}


@pytest.mark.parametrize("program", NO_TIMES)
def test_what_is_known_and_has_no_times_is_told_in_one_line(tmp_path: Path, program: str) -> None:
    text, said = NO_TIMES[program]
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        read_recorded([path])
    assert "\n" not in str(raised.value)


def test_a_compressed_trace(tmp_path: Path) -> None:
    path = tmp_path / "rank1.pt.trace.json.gz"
    path.write_bytes(gzip.compress(TIMES["PyTorch's profiler"][0].encode()))
    assert (one(path).worker, one(path).kind, len(one(path))) == ("1", "profile", 2)
    path.write_bytes(b"\x1f\x8bno")
    with pytest.raises(InputError, match="compressed but cut off"):
        one(path)
    path.write_bytes(b"\x1f\x8b" + b"no" * 20)
    with pytest.raises(InputError, match="neither text nor compressed text"):
        read_recorded([path])


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
    assert "no scalar gives steps/s" in run.remarks[0]


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
    with pytest.raises(InputError, match="checksum"):
        read_recorded([copy])


def test_folders_without_steps_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder without"):
        read_recorded([tmp_path])
    with pytest.raises(InputError, match="no such file"):
        read_recorded([tmp_path / "none.csv"])
    with pytest.raises(InputError, match=r"`pattern`: .* is not a log"):
        read_recorded([tmp_path], pattern="(?P<rate>x)")


def test_what_reads_a_file_follows_from_its_content(tmp_path: Path) -> None:
    for text, kind in ((lines(HEADER), StepsFile), ("step\tstep_time_s\n", StepsTable), ("step 5 took 3 s, loss 4\n", Log)):
        (tmp_path / "file").write_text(text)
        assert isinstance(reader_of(tmp_path / "file"), kind)
