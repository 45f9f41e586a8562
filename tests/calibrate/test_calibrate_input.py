"""``paceline calibrate-input`` on real tf.data pipelines."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.needs import needs_tensorflow
from support.probes import run_script
from support.waiting import PATIENCE_S

from calibrate.fit.input_pipeline import fit_input, stages_of
from calibrate.measurements import Batches, PipelineRecord, Stages, read_measurements
from simulator.catalogue.loading import load_input, load_scenario

PIPELINES = Path(__file__).parent / "data" / "pipelines.py"

_MANY = f"""
import sys
from _paceline_probes import input_pipeline as probe
for name in sys.argv[1:]:
    options = ["--rounds", "2", "--count", "12", "--seconds", "0.2"] + (["--batches", "4,8"] if name in ("sized", "untuned") else [])
    sys.argv[1:] = ["--input", {str(PIPELINES)!r} + ":" + name, "--calls", "1,2", "--out", name + ".ndjson"] + options
    print("status", name, probe.main())
"""
"""Measures several in one process."""


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_what_pipelines_are_and_what_is_refused(tmp_path: Path) -> None:
    names = ["endless", "whole", "repeated", "sized", "untuned", "empty", "short", "number", "raises", "wrong", "picky", "absent"]
    done = run_script(_MANY, *names, cwd=tmp_path, timeout=PATIENCE_S)
    statuses = dict(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("status"))
    assert statuses == {name: "0" if name in names[:5] else "5" for name in names}, done.stderr[-2000:]

    found = {name: fit_input(tmp_path / f"{name}.ndjson", name) for name in names[:5]}
    assert {
        name: (its.prefetch, its.shuffle_buffer, its.cached is not None) for name, its in found.items() if name not in ("whole", "untuned")
    } == {
        "endless": (3, 4, False),
        "repeated": (found["repeated"].prefetch, 0, True),
        "sized": (2, 0, False),
    }
    assert found["whole"].cached is not None
    assert found["whole"].parallel_calls == 2
    assert found["endless"].provenance["pipeline"] == "Prefetch(3) <- Batch(4) <- Map <- Repeat <- Shuffle(4) <- Range"
    for its in found.values():
        assert its.calibrated is not None
        assert max(its.work.serial(4), its.work.parallel(4)) > 0
    sized = read_measurements(tmp_path / "sized.ndjson")
    assert {(its.batch, its.calls) for its in sized.of(Batches)} == {(4, 1), (4, 2), (8, 1), (8, 2)}
    assert sized.of(PipelineRecord)[0].takes == ["batch", "num_parallel_calls", "prefetch"]
    # its account comes from stretches of its own, and puts the busy map into the parallel part however loaded the machine is
    untuned = read_measurements(tmp_path / "untuned.ndjson")
    assert {(its.batch, its.calls, its.round, its.separate) for its in untuned.of(Stages)} == {
        (batch, 1, turn, True) for batch in (4, 8) for turn in (0, 1)
    }
    for its in untuned.of(Stages):
        assert [node.parameters["parallelism"] for node in its.nodes if node.parameters] == [1.0]
    serial, parallel = np.median([stages_of(its.nodes) for its in untuned.of(Stages)], axis=0)
    assert parallel > serial
    assert "work_split" not in found["untuned"].provenance
    # of 16 batches, the first three and the last are not timed
    epochs = [len(its.seconds) for its in read_measurements(tmp_path / "repeated.ndjson").of(Batches)]
    assert set(epochs) == {12}

    said = {name: getattr(read_measurements(tmp_path / f"{name}.ndjson").failure, "message", "") for name in names[5:]}
    assert said["empty"].endswith(":empty: is empty: it has no batch")
    assert "has only 2 batches" in said["short"]
    assert "'number' is a int, not a tf.data.Dataset or a function" in said["number"]
    assert "raises" in said["raises"]
    assert "no such picture" in said["raises"]
    assert "returns a list; it must return a tf.data.Dataset" in said["wrong"]
    assert "takes path; it may take num_parallel_calls, prefetch, batch and cache" in said["picky"]
    assert "has no 'absent'; it has endless, whole" in said["absent"]


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_a_pipeline_becomes_a_file_that_a_scenario_names(paceline: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    target = f"{PIPELINES}:sized"
    options = "--batch", "4,8", "--calls", "1,2", "--rounds", "2", "--count", "12"
    code, out, err = paceline("calibrate-input", target, "--name", "mine", *options, "--json")
    assert code == 0, err
    summary = json.loads(out)
    written = load_input(tmp_path / "models" / "inputs" / "mine.toml")
    assert summary["name"] == written.name == "mine"
    assert (tmp_path / summary["measurements"]).is_file()
    assert "calibrate-input" in written.provenance["command"]
    assert load_scenario("ring", {"input.use": "mine"}).input == written
    code, out, _ = paceline("models", "list", "--json")
    assert [row["prefetch"] for row in json.loads(out) if row["name"] == "mine"] == [2]
    code, out, _ = paceline("calibrate-input", "--from-measurements", summary["measurements"], "--name", "again")
    assert code == 0
    assert "parallel calls 1, prefetch 2" in out


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
def test_a_data_set_that_raises_is_bad_input(paceline: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, _, err = paceline("calibrate-input", f"{PIPELINES}:raises", "--name", "x")
    assert code == 2
    assert "raises UnknownError" in err.splitlines()[-1]
    assert "no such picture" in err.splitlines()[-1]
    assert not list(tmp_path.glob("measurements/*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("nowhere.py:images --name x", "nowhere.py: there is no such file"),
        ("images --name x", "must be a file and a function in it"),
        ("--name x", "give one of FILE.py:DATASET and --from-measurements"),
        (f"'{PIPELINES}:endless' --name x --calls 0,1", "--calls 0: must be at least 1"),
        (f"'{PIPELINES}:endless' --name x --batch many", "--batch 'many': must be whole numbers"),
        (f"'{PIPELINES}:endless' --name a/b", "--name"),
        (f"'{PIPELINES}:endless' --name x --out pyproject.toml", "is not a calibrated input file"),
        ("--from-measurements none.ndjson --name x", "none.ndjson: there is no such file"),
    ],
)
def test_bad_input_is_one_line(paceline: Callable[..., tuple[int, str, str]], tmp_path: Path, arguments: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    code, _, err = paceline("calibrate-input", *shlex.split(arguments))
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
