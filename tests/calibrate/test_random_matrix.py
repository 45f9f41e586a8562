"""Matrices drawn by seed: the declared space is kept, every group is there, and a seed means the same settings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from calibrate.testbed.running import busiest_share, guessed_run_s, guessed_step_s
from calibrate.testbed.setting import TestbedSetting, TestbedVariable
from calibrate.validation.matrix import Matrix, faults_of, read_matrix, with_models
from calibrate.validation.random_matrix import CORES, GROUPS, LAYERS, RING, SERVERS, TCP, matrix_named, random_matrix, random_text
from simulator.base.errors import InputError, ScenarioError


def described(model: str, python: str | None, batch: int) -> tuple[TestbedVariable, ...]:
    """Of the one model that has to be built."""
    assert model.endswith("cnn.py:build")
    return tuple(TestbedVariable(name=f"kernel_{index}", shape=(100, 350), ready=1.0) for index in range(10))


def drawn(seed: int, count: int = 12) -> Matrix:
    return built(random_matrix(seed, count))


def built(matrix: Matrix) -> Matrix:
    with patch("calibrate.validation.matrix.describe_model", described):
        return with_models(matrix)


@pytest.fixture(scope="module", params=[20, pytest.param(80, marks=pytest.mark.long)])
def many(request: pytest.FixtureRequest) -> list[Matrix]:
    return [drawn(seed) for seed in range(request.param)]


def test_every_group_has_its_share(many: list[Matrix]) -> None:
    for matrix in many:
        assert Counter(one.group for one in matrix.held_out) == {SERVERS: 4, RING: 2, LAYERS: 2, TCP: 2, CORES: 2}
    assert {one.group for one in drawn(1, 5).held_out} == set(GROUPS)


def test_each_group_is_what_its_name_says(many: list[Matrix]) -> None:
    for one in (one for matrix in many for one in matrix.held_out):
        setting = one.setting
        assert setting.overlap == (one.group == LAYERS)
        assert (setting.compute.kind == "real") == (one.group == CORES)
        assert (setting.link is not None and setting.link.sharing == "tcp") == (one.group == TCP)
        if one.group != CORES:
            assert setting.link is not None
            assert (setting.mode == "ring") == (one.group == RING) or one.group == LAYERS


def test_the_machine_can_carry_it(many: list[Matrix]) -> None:
    for one in (one.setting for matrix in many for one in matrix.held_out):
        assert 2 <= one.workers <= (4 if one.compute.kind == "real" else 8 if one.mode == "ring" else 16)
        assert one.servers <= min(4, len(one.variables))
        assert one.backup_workers < one.workers - 1
        if one.link is not None and one.compute.kind == "emulated":
            bits = one.link.bandwidth_bytes_per_s * 8
            assert bits * (one.workers if one.mode == "ring" else min(one.servers, one.workers)) <= (3.2e9 if one.mode == "ring" else 2e9)


def test_runs_are_of_10_to_40_seconds(many: list[Matrix]) -> None:
    for one in (one.setting for matrix in many for one in matrix.held_out):
        assert one.steps * guessed_step_s(one) * 1.001 >= 10
        assert one.steps * guessed_step_s(one) <= 40 * 1.001
        assert 12 <= one.steps <= 400
    # with its fit a matrix is measured within the hour that is not asked about
    assert all(sum(guessed_run_s(one, matrix.repeats) for one in matrix.settings) < 3000 for matrix in many)


def test_link_and_compute_both_matter(many: list[Matrix]) -> None:
    """The busiest link is in use for a good part of a step, and compute is a good part of one."""
    for one in (one.setting for matrix in many for one in matrix.held_out if one.setting.compute.kind == "emulated"):
        assert one.link is not None
        alone_s = one.moved_bytes / one.link.bandwidth_bytes_per_s
        if one.mode == "ring":
            busy_s = 2 * (one.workers - 1) / one.workers * alone_s
        else:
            busy_s = one.workers * alone_s * busiest_share((each.size_bytes for each in one.variables), one.servers)
        step_s = guessed_step_s(one)
        assert busy_s / step_s > 0.08
        assert one.compute.mean_s / step_s > 0.08


def test_nothing_is_drawn_twice_or_fitted(many: list[Matrix]) -> None:
    for matrix in many:
        kinds = [one.setting.kind_of_run for one in matrix.held_out]
        assert len(set(kinds)) == len(kinds)
        assert not set(kinds) & {one.kind_of_run for one in matrix.fit}


def test_the_fit_shows_all_that_the_predictions_need(many: list[Matrix]) -> None:
    assert all(faults_of(matrix) == [] for matrix in many)


def test_the_space_is_used(many: list[Matrix]) -> None:
    """Over many seeds each choice comes up: modes, workers, servers, rates, laws, even and uneven models."""
    settings = [one.setting for matrix in many for one in matrix.held_out]
    assert {one.mode for one in settings} == {"async", "between-graph", "sync", "ring", "mirrored"}
    assert {one.workers for one in settings} == {2, 3, 4, 5, 6, 8, 10, 12, 16}
    assert {one.servers for one in settings} == {0, 1, 2, 3, 4}
    assert {one.compute.law.kind for one in settings} == {"constant", "exponential", "gamma", "lognormal"}
    assert len({one.link.bandwidth_bytes_per_s for one in settings if one.link is not None}) == 7
    assert {one.model.partition("-")[0] for one in settings} >= {"ladder", "uneven", "cnn"}
    assert {one.backup_workers for one in settings} == {0, 1}
    assert any(one.link is None for one in settings)


def _kinds(matrix: Matrix) -> list[tuple[str, TestbedSetting]]:
    return [(one.group, one.setting) for one in matrix.held_out]


def test_a_seed_means_the_same_settings_and_a_longer_matrix_begins_with_the_shorter() -> None:
    assert drawn(7) == drawn(7)
    assert _kinds(drawn(7, 24))[:12] == _kinds(drawn(7, 12))
    assert _kinds(drawn(7)) != _kinds(drawn(8))


def test_what_a_seed_draws_does_not_change() -> None:
    """Recorded: a seed that was written down must mean the same in every later version, or the space's change must be told."""
    assert [one.setting.label for one in drawn(1, 5).held_out] == [
        "between-graph 4 x 1 PS, 300 Mbit/s fair, ladder-1mb, lognormal(0.3) 56 ms",
        "ring 5, 200 Mbit/s fair, uneven-1mb, exponential 96 ms",
        "async 2 x 2 PS, 400 Mbit/s tcp, uneven-4mb, gamma(4) 84 ms",
        "async 4 x 2 PS, 1000 Mbit/s fair, ladder-1mb, real",
        "sync 4 x 4 PS (1 backup), 200 Mbit/s fair, ladder-4mb, constant 170 ms, by layer",
    ]


@pytest.mark.parametrize("seed", [1, 5, 10**18 - 1])
def test_what_was_drawn_is_written_and_read_back(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "drawn.toml"
    path.write_text(random_text(seed, 12), encoding="utf-8")
    assert built(read_matrix(path)) == drawn(seed).model_copy(update={"drawn_by": None})


@pytest.mark.parametrize(("seed", "count"), [(1, 0), (1, 201), (1, -3), (-1, 12), (10**18, 12)])
def test_seed_and_count_have_their_range(seed: int, count: int) -> None:
    with pytest.raises(InputError, match=r"must be (from|at least 0)"):
        drawn(seed, count)


@pytest.mark.parametrize(
    "name", ["random", "random:", "random:x", "random:-1", "random:1.5", "random: 1", "random:1:2", f"random:{10**18}"]
)
def test_a_seed_is_a_whole_number(name: str) -> None:
    with pytest.raises(InputError, match="must have a seed, a whole number"):
        matrix_named(name)


def test_a_matrix_of_another_name_is_no_seed() -> None:
    with pytest.raises(ScenarioError, match=r"no file 'randomised\.toml'"):
        matrix_named("randomised.toml")
    assert matrix_named("random:20", 1).drawn_by == 20
    with pytest.raises(InputError, match=r"`count`: needs drawn settings"):
        matrix_named("quick", 3)
