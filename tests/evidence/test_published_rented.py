"""Machines that were taken away: the law of their lifetimes, and jobs that went on without some of their workers."""

from __future__ import annotations

import math

import pytest

from evidence.published.rented import (
    WATCHED,
    Law,
    Machine,
    billed_usd,
    fitted,
    foretold,
    job_rows,
    job_table,
    kept_back,
    lifetimes,
    log_likelihood,
    preempted_jobs,
)
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


# -- jobs of which nobody knows what they will lose -----------------------------------------------


def test_half_of_the_jobs_of_each_size_is_kept_back_by_a_seed():
    kept = kept_back(JOBS)
    assert kept == kept_back(JOBS)
    assert [sum(job.workers == workers for job in set(kept)) for workers in (2, 8)] == [15, 16]


def test_machines_are_paid_for_until_they_are_taken():
    """As the authors have it where nothing was taken; less than what they have of two workers, where they count all to the end."""
    whole = [job for job in JOBS if not job.taken]
    assert max(abs(billed_usd(job) / job.cost_usd - 1) for job in whole) < 0.001
    assert all(billed_usd(job) < 0.95 * job.cost_usd for job in JOBS if job.taken and job.workers == 2)


def test_the_likeliest_law_is_the_one_that_is_fitted():
    law = fitted(WATCHED_MACHINES)
    for other in (Law(law.mean_h * 1.2, law.shape), Law(law.mean_h / 1.2, law.shape), Law(law.mean_h, 0.7), fitted(WATCHED_MACHINES, 1.0)):
        assert log_likelihood(WATCHED_MACHINES, law) > log_likelihood(WATCHED_MACHINES, other)
    taken, alive = Machine("made up", "nowhere", 5.0, True), Machine("made up", "nowhere", 5.0, False)
    assert log_likelihood([alive], Law(10.0, 0.6)) == pytest.approx(math.log(Law(10.0, 0.6).alive(5.0)))
    chance = (Law(10.0, 0.6).alive(4.999) - Law(10.0, 0.6).alive(5.001)) / 0.002
    assert log_likelihood([taken], Law(10.0, 0.6)) == pytest.approx(math.log(chance), rel=1e-4)


@pytest.mark.parametrize("workers", [2, pytest.param(8, marks=pytest.mark.long)])
def test_jobs_lie_in_intervals_that_know_how_machines_live(workers):
    """At least nine in ten of the half that was kept back, and of all; of two workers those that lost one only by the law."""
    its = foretold(workers, "Weibull")
    for jobs in (kept_back(JOBS), JOBS):
        seconds = [job.seconds for job in jobs if job.workers == workers]
        usd = [billed_usd(job) for job in jobs if job.workers == workers]
        assert sum(its.seconds.low <= each <= its.seconds.high for each in seconds) >= 0.9 * len(seconds)
        assert sum(its.cost_usd.low <= each <= its.cost_usd.high for each in usd) >= 0.9 * len(usd)
    if workers == 2:
        plain = foretold(workers, "nothing taken")
        assert sum(plain.seconds.low <= job.seconds <= plain.seconds.high for job in JOBS if job.workers == 2) < 0.9 * 31
