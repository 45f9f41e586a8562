"""Damaged measurement files: one clear line each."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from calibrate.fit.step import fit_workload
from calibrate.measurements import new_file, read_measurements
from calibrate.probes.recording import Recorder
from simulator.base.errors import CalibrationError, PacelineError


def _with(synthetic: Any, line: str) -> Path:
    path = synthetic.steps()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:5], line + "\n", *lines[5:]]))
    return path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"kind": "step", "batch": 16, "round": 0, "seconds": NaN}', "seconds: nan must"),
        ('{"kind": "step", "batch": 16, "round": 0, "seconds": Infinity}', "seconds: inf must"),
        ('{"kind": "step", "batch": 16, "round": 0, "seconds": -0.1}', "seconds: -0.1 must be above 0"),
        ('{"kind": "step", "batch": 16, "round": 0, "seconds": 0}', "seconds: 0 must be above 0"),
        ('{"kind": "step", "batch": 16, "round": 0}', "seconds: is missing"),
        ('{"kind": "step", "batch": 0, "round": 0, "seconds": 0.1}', "batch: 0 must"),
        ('{"kind": "step", "batch": 16, "round": 0, "seconds": "fast"}', "seconds: 'fast' must be a number; delete"),
        ('{"kind": "step", "batch": 16, "round": 0, "seconds": 0.1, "x": 1}', "x is not a field"),
        ('{"kind": "nonsense"}', "not a record of a known kind"),
        ("[1, 2]", ":6: must be an object in braces with a kind; delete"),
        ("not JSON at all", "is not JSON ('not JSON at all')"),
        ("\x1b[31m\x00 \ufffd \u202e", "is not JSON ('\\x1b[31m\\x00 \ufffd \\u202e'); delete the line"),
        ('{"kind": "step", "batch": 16, "round": 0, "seconds": "' + 70 * "x" + '"}', "seconds: '" + 55 * "x" + "...' must be a number"),
        ('{"kind": "step", "batch": "two", "round": 0, "seconds": 0.1}', "batch: 'two' must be a whole number"),
        ('{"kind": "step", "batch": 16, "round": 0, "seconds": 1.7e308}', "seconds: 1.7e+308 must be at most 1e+100; delete"),
        ('{"kind": "ready", "batch": 1, "index": 0, "observed": true, "ready_s": {"0": -1}}', "ready_s.0: -1 must be at least 0"),
    ],
)
def test_a_damaged_line_is_named(synthetic: Any, line: str, said: str) -> None:
    path = _with(synthetic, line)
    with pytest.raises(CalibrationError) as caught:
        read_measurements(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:6: ")
    assert said in message
    assert "\n" not in message


def test_a_last_line_cut_off_is_left_out_and_said(synthetic: Any) -> None:
    path = synthetic.steps()
    whole = read_measurements(path)
    path.write_text(path.read_text().rstrip("\n")[:-4])
    cut = read_measurements(path)
    assert cut.truncated
    assert len(cut.records) == len(whole.records) - 1
    assert "cut off" in fit_workload(path, "cut").provenance["truncated"]


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(CalibrationError, match="has no measurements"):
        read_measurements(tmp_path / "empty")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match=r"there is no such file.*check the path"):
        read_measurements(tmp_path / "nowhere")


def test_another_schema(synthetic: Any) -> None:
    path = synthetic.steps()
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 99', 1))
    with pytest.raises(
        CalibrationError, match=r":1: schema_version: 99 must be 1; is this a measurement file of this version of Paceline\?$"
    ):
        read_measurements(path)


def test_bytes_that_are_no_text_are_shown_as_escapes(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\x00\n{}\n")
    with pytest.raises(CalibrationError) as caught:
        read_measurements(tmp_path / "binary")
    assert str(caught.value).endswith(r"binary:1: is not JSON ('\x7fELF\xff\x00'); is this a measurement file of this version of Paceline?")


def test_a_file_without_header(synthetic: Any) -> None:
    path = synthetic.steps()
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(CalibrationError, match="must be a header"):
        read_measurements(path)


def test_a_new_file_never_is_an_old_one(tmp_path: Path) -> None:
    names = set()
    for _ in range(5):
        path = new_file(tmp_path, "model", "step")
        path.touch()
        names.add(path)
    assert len(names) == 5


@examples(50)
@given(data=st.data())
def test_garbage_is_refused_or_read_but_never_a_traceback(synthetic: Any, monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    monkeypatch.setattr("calibrate.fit.step_times.DRAWS", 2)
    records = synthetic.step_records(synthetic.Truth(batches=(4, 8), rounds=3), synthetic.gamma_of(0.1))
    lines = [json.dumps(record) for record in records]
    index = data.draw(st.integers(0, len(lines) - 1))
    value = data.draw(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=2))
    )
    key = data.draw(st.sampled_from(sorted(records[index])))
    lines[index] = json.dumps({**records[index], key: value})
    path = synthetic.folder / "mutated.ndjson"
    path.write_text("\n".join(lines) + "\n")
    said = ""
    try:
        fit_workload(path, "mutated")
    except PacelineError as error:
        said = str(error)
    assert "\n" not in said


def test_no_flipped_bit_of_what_a_probe_writes_gives_another_figure(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "m.ndjson"))
    recorder.header("step", {"precision": "float32"})
    for turn in range(3):
        recorder.write("step", batch=16, round=turn, seconds=0.1 * (turn + 1))
    recorder.write("end")
    whole, content = read_measurements(tmp_path / "m.ndjson"), (tmp_path / "m.ndjson").read_bytes()
    assert len(whole.records) == 5
    read, path = [], tmp_path / "flipped.ndjson"
    for bit in random.Random(1).sample(range(8 * len(content)), 600):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with suppress(CalibrationError):
            read.append(read_measurements(path))
    assert 0 < len(read) < 30  # all others are refused
    for found in read:
        assert found.truncated
        assert found.records == whole.records[:4]


def test_a_changed_record_is_named(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "m.ndjson"))
    recorder.header("step", {})
    recorder.write("step", batch=16, round=0, seconds=0.1)
    path = tmp_path / "m.ndjson"
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.raises(CalibrationError, match=r"m.ndjson:2: does not match its checksum .*; delete the line, or measure again"):
        read_measurements(path)
