"""Machines that were taken away: the law of their lifetimes, and jobs that went on without some of their workers."""

from __future__ import annotations

import math

import pytest

from evidence.published.rented import WATCHED, Law, Machine, fitted, job_rows, job_table, lifetimes, preempted_jobs
from evidence.published.tables import load_tables

JOBS = preempted_jobs()
WATCHED_MACHINES = [each for each in lifetimes() if each.kind in WATCHED]


def test_every_job_of_the_source_is_on_record():
    """As many as the accounting leaves out of the throughputs."""
    left_out = sum(each.rows for each in load_tables().excluded if each.table == "transient_tf")
    assert len(JOBS) == left_out == 63
    assert sum(bool(job.taken) for job in JOBS) == 10
    assert all(0 < at_s < job.seconds for job in JOBS for _, at_s in job.taken)


def test_the_exponential_law_has_the_hours_of_all_over_those_taken():
    machines = [Machine("made up", "nowhere", 2.0, True), Machine("made up", "nowhere", 24.0, False)]
    law = fitted(machines, 1.0)
    assert law.mean_h == pytest.approx(26.0)
    assert law.alive(26.0) == pytest.approx(math.exp(-1.0))


@pytest.mark.parametrize("law", [Law(10.0, 0.6), Law(10.0, 2.0)])
def test_a_law_is_found_again_in_its_own_quantiles(law):
    scale = law.mean_h / math.gamma(1.0 + 1.0 / law.shape)
    lived = [scale * (-math.log((number + 0.5) / 2000)) ** (1.0 / law.shape) for number in range(2000)]
    found = fitted(Machine("made up", "nowhere", hours, True) for hours in lived)
    assert found.shape == pytest.approx(law.shape, rel=0.03)
    assert found.mean_h == pytest.approx(law.mean_h, rel=0.03)


def test_machines_are_taken_early_or_live_long():
    """Of those watched more are lost in the first hour than a law without memory says; as many reach their 24 hours."""
    plain, found = fitted(WATCHED_MACHINES, 1.0), fitted(WATCHED_MACHINES)
    alive = {hours: sum(each.hours >= hours for each in WATCHED_MACHINES) / len(WATCHED_MACHINES) for hours in (1, 24)}
    assert found.shape < 0.7
    assert abs(plain.alive(24) - alive[24]) < 0.02
    assert 1 - plain.alive(1) < (1 - alive[1]) / 3
    assert abs(found.alive(1) - alive[1]) < 0.03


def test_jobs_that_lost_workers_end_when_they_did():
    """Ten jobs, from the row of one machine without servers, whose pull and push come on top: as they were seen, plus a tenth."""
    rows = job_rows(job for job in JOBS if job.taken)
    assert len(rows) == 10
    assert max(abs(row.error) for row in rows) < 0.12
    assert max(abs(row.baselines["nothing taken"] / row.mean - 1) for row in rows) > 0.4
    assert sum(row.predicted.low < row.mean < row.predicted.high for row in rows) >= 9


def test_a_job_from_which_nothing_is_taken_has_no_faults():
    whole = next(job for job in JOBS if not job.taken)
    assert job_table(whole, {"workload": {"batch_per_replica": 128}})["job"] == {"samples": 8_192_000}
