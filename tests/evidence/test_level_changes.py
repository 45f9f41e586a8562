"""How soon a watch tells of a change in mid-run, and how rarely of none: a few of the runs behind the page's table."""

from __future__ import annotations

import pytest

from evidence.studies.level_changes import WITHIN, Kind, Watching, drawn

GRADUALLY, INDEPENDENT, STAYS = Kind(0.1, 0.9), Kind(0.1, 0.0), Kind(0.1, 0.5, stays=True)


@pytest.fixture(scope="module")
def watching() -> Watching:
    return Watching()


def test_steps_are_drawn_with_their_spread_and_persistence() -> None:
    for kind in (GRADUALLY, INDEPENDENT, STAYS):
        for seed in (0, 1):
            steps = drawn(kind, 40_000, seed)
            assert steps.mean() == pytest.approx(1.0, abs=0.01)
            assert steps.std() == pytest.approx(kind.cv, rel=0.05)
            centred = steps - steps.mean()
            assert (centred[1:] * centred[:-1]).mean() / steps.var() == pytest.approx(kind.persistence, abs=0.03)


@pytest.mark.slow
@pytest.mark.statistics
@pytest.mark.parametrize("kind", [GRADUALLY, INDEPENDENT, STAYS])
def test_runs_of_one_level_are_almost_never_called_slower(watching: Watching, kind: Kind) -> None:
    assert sum(watching.is_false_alarm(kind, seed) for seed in range(20)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "factor"), [(Kind(0.05, 0.0), 1.1), (Kind(0.1, 0.0), 1.2), (Kind(0.2, 0.5), 1.5), (Kind(0.02, 0.9), 1.1), (GRADUALLY, 1.5)]
)
def test_a_change_is_told_within_sixty_steps(watching: Watching, kind: Kind, factor: float) -> None:
    delays = [watching.delay(kind, factor, seed) for seed in range(6)]
    assert sum(delay is not None and delay <= WITHIN for delay in delays) >= 5
