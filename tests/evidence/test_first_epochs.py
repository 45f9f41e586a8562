"""First epochs of real trainings: read from what was written down, held against predictions, and run for real."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.measurements import FINGERPRINT, header, write_lines
from support.needs import needs_tensorflow

import calibrate
from calibrate.measurements import MeasurementsError, read_measurements
from evidence.studies.first_epochs import TABLE, compared, compared_jobs, jobs_of_rows, scenario_of, table_of
from evidence.studies.timed_epochs import JobSetting, Span, measure_job, read_job, read_job_settings
from simulator import simulate
from simulator.base.errors import InputError

ROOT = Path(calibrate.__file__).parent.parent
MEASURED = ROOT / "models" / "measured"

WORKLOAD: dict[str, Any] = {
    "name": "exact",
    "forward": {"base_s": 0.01, "per_sample_s": 0.001},
    "backward": {"base_s": 0.02, "per_sample_s": 0.002},
    "variables": [{"name": "w", "size_bytes": 4000.0, "creation_index": 0, "ready": 1.0}],
    "overheads": {
        "startup": "4 s",
        "tracing": "0.5 s",
        "evaluation_tracing": "0.25 s",
        "checkpoint_bytes": 8e6,
        "write_bytes_per_s": 4e7,
    },
}


def _spans() -> list[dict[str, Any]]:
    """Two epochs of three steps; in seconds since the start of the process."""
    parts = [
        ("step", 0, 3.0, 3.5), ("step", 0, 3.5, 3.6), ("step", 0, 3.6, 3.8), ("evaluation step", 0, 4.0, 4.1), ("evaluation", 0, 3.9, 4.2),
        ("checkpoint", 0, 4.2, 4.5), ("epoch", 0, 2.9, 4.6),
        ("step", 1, 4.8, 4.9), ("step", 1, 4.9, 5.0), ("step", 1, 5.1, 5.2), ("evaluation", 1, 5.2, 5.3), ("checkpoint", 1, 5.3, 5.5),
        ("epoch", 1, 4.7, 5.5), ("job", 1, 0.0, 5.6),
    ]  # fmt: skip
    return [{"kind": "span", "what": what, "epoch": epoch, "began_s": began, "ended_s": ended} for what, epoch, began, ended in parts]


def test_parts_of_a_training_make_up_the_whole(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "job.ndjson", [header("job"), FINGERPRINT, *_spans(), {"kind": "end"}])
    job = read_job(read_measurements(path))
    assert job.startup_s == 3.0
    first, second = job.epochs
    assert (first.number, second.number) == (1, 2)
    assert [first.first_step_s, first.steps_s, first.step_s] == pytest.approx([0.5, 0.3, 0.15])
    assert [first.evaluation_s, first.checkpoint_s, first.time_s] == pytest.approx([0.4, 0.4, 1.6])
    assert [second.first_step_s, second.steps_s, second.evaluation_s, second.checkpoint_s] == pytest.approx([0.3, 0.3, 0.1, 0.2])
    assert job.time_s == pytest.approx(5.5)  # the end of the last epoch: nothing is counted twice, and nothing lost


def test_a_training_that_did_not_end_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "job.ndjson", [header("job"), FINGERPRINT, *_spans()[:9]])
    with pytest.raises(MeasurementsError, match=r"job\.ndjson"):
        read_job(read_measurements(path))


def test_predictions_are_those_that_one_works_out_by_hand() -> None:
    setting = JobSetting(model="m.py:build", workload="w", batch=10, steps=5, evaluation_steps=2, epochs=3)
    result = simulate(scenario_of(setting, WORKLOAD))
    step_s, forward_s, write_s = 0.06, 0.02, 0.2
    rows = {one.what: one.predicted for one in compared_jobs(setting, [_alike(3)], result)}
    assert rows == pytest.approx(
        {
            "start-up": 4.0,
            "first step": 0.5 + step_s,
            "a later step": step_s,
            "first epoch": 0.5 + 5 * step_s + 0.25 + 2 * forward_s + write_s,
            "a later epoch": 5 * step_s + 2 * forward_s + write_s,
            "first evaluation": 0.25 + 2 * forward_s,
            "a later evaluation": 2 * forward_s,
            "a checkpoint": write_s,
            "the whole job": 4.75 + 3 * (5 * step_s + 2 * forward_s + write_s),
            "the same by steady throughput": 15 * step_s,
        },
        rel=1e-6,
    )


def test_one_process_traces_once_for_each_of_its_replicas() -> None:
    alone = JobSetting(model="m.py:build", workload="w", batch=10, steps=5, evaluation_steps=2)
    parts = [simulate(scenario_of(alone.model_copy(update={"replicas": count}), WORKLOAD)).job for count in (1, 2, 4)]
    # half a second for the step, a quarter for the evaluation
    assert [part.parts_s.tracing for part in parts if part is not None] == pytest.approx([0.75, 1.5, 3.0])
    given = scenario_of(alone.model_copy(update={"replicas": 4}), WORKLOAD)
    assert given.job is not None
    job = given.job.model_copy(update={"tracing": given.workload.overheads.tracing, "evaluation_tracing": given.workload.overheads.tracing})
    found = simulate(given.model_copy(update={"job": job})).job
    assert found is not None
    assert found.parts_s.tracing == pytest.approx(1.0), "what a scenario says itself is taken as it is"


def _alike(epochs: int) -> Any:
    row = {"startup_s": "1", "first_step_s": "1", "steps_s": "4", "step_s": "1", "evaluation_s": "1", "checkpoint_s": "1", "name": "x"}
    return jobs_of_rows([{**row, "repeat": "1", "epoch": str(number)} for number in range(1, epochs + 1)])["x"][0]


def test_the_recorded_trainings_are_predicted_as_the_table_says() -> None:
    """The table follows from the rows and workloads in the repository, to the letter."""
    assert table_of(compared(MEASURED / "first-epochs.toml", MEASURED / "first-epochs.csv")) == TABLE.read_text(encoding="utf-8")


def test_every_setting_was_measured_three_times() -> None:
    with (MEASURED / "first-epochs.csv").open(encoding="utf-8", newline="") as file:
        jobs = jobs_of_rows(list(csv.DictReader(file)))
    settings = read_job_settings(MEASURED / "first-epochs.toml")
    assert {one.name for one in settings} == set(jobs)
    for setting in settings:
        assert [len(job.epochs) for job in jobs[setting.name]] == [setting.epochs] * 3


def test_bad_settings_are_told(tmp_path: Path) -> None:
    (tmp_path / "none.toml").write_text("")
    with pytest.raises(InputError, match=r"has no \[\[setting\]\]"):
        read_job_settings(tmp_path / "none.toml")
    (tmp_path / "one.toml").write_text('[[setting]]\nmodel = "a.py:build"\nworkload = "w.toml"\nbatch = 8\nsteps = 1\n')
    with pytest.raises(InputError, match=r"setting 1.*steps"):
        read_job_settings(tmp_path / "one.toml")
    with pytest.raises(InputError, match="there is no such file"):
        measure_job(JobSetting(model="no.py:build", workload="w", batch=1, steps=2), tmp_path)


@needs_tensorflow
@pytest.mark.usefixtures("warm_probes")
@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_real_training_writes_down_its_parts(tmp_path: Path, replicas: int) -> None:
    model = f"{ROOT / 'models' / 'keras' / 'mlp.py'}:build"
    setting = JobSetting(model=model, workload="w", batch=8, steps=4, evaluation_steps=2, epochs=2, replicas=replicas)
    measured = read_measurements(measure_job(setting, tmp_path, device="CPU", timeout_s=120))
    spans = measured.of(Span)
    assert [sum(span.what == what for span in spans) for what in ("step", "evaluation step", "checkpoint", "epoch")] == [8, 4, 2, 2]
    job = read_job(measured)
    assert job.epochs[0].first_step_s > job.epochs[0].step_s, "the first step traces"
    assert job.time_s <= max(span.ended_s for span in spans if span.what == "job")
    assert [path.suffix for path in tmp_path.iterdir()] == [".ndjson"], "no checkpoint stays"
