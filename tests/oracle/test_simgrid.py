"""The network against SimGrid's, where that is installed: the same flows over the same star end at the same times."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.program.program import Changes

pytestmark = pytest.mark.slow

PEER = Path(__file__).parents[2] / "benchmarks" / "simgrid_peer.py"


def _peer():
    spec = importlib.util.spec_from_file_location("simgrid_peer", PEER)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def peer():
    if not PEER.exists():
        pytest.skip("the benchmarks are not here")
    module = _peer()
    reason = module.missing()
    if reason is not None:
        pytest.skip(f"SimGrid cannot be asked: {reason}")
    return module


@pytest.fixture(scope="module")
def program(peer, tmp_path_factory):
    return peer.build(tmp_path_factory.mktemp("simgrid"))


@pytest.mark.parametrize("equal", [pytest.param(True, id="equal links", marks=pytest.mark.long), pytest.param(False, id="different links")])
@pytest.mark.parametrize(
    ("hosts", "flows"), [(3, 200), *(pytest.param(*size, marks=pytest.mark.long) for size in ((2, 200), (8, 400), (24, 600), (64, 1000)))]
)
def test_flows_end_when_simgrid_says(peer, program, hosts, flows, equal):
    """To a thousandth of a millionth: both compute the same shares, and differ by rounding alone."""
    star = peer.random_star(hosts + flows, hosts, flows, equal=equal)
    want = peer.theirs(program, star)
    got = peer.ours(star)
    assert len(got) == len(want) == flows
    assert got == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("beside", "at_s", "left"),
    [
        pytest.param(0, [0.0], [0.6], id="a constant load", marks=pytest.mark.long),
        pytest.param(3, [0.0], [1.0], id="flows of others", marks=pytest.mark.long),
        pytest.param(0, [0.0, 0.2], [1.0, 0.25], id="a trace", marks=pytest.mark.long),
        pytest.param(2, [0.0, 0.3], [0.5, 0.9], id="flows and a trace"),
    ],
)
def test_with_what_others_send(peer, program, beside, at_s, left):
    """A profile of the links' bandwidths, and endless flows over each of them, in the same star.

    Profiles of two points: of three SimGrid 3.32 takes the last for something else than the naive fluid simulation, which ours agrees with.
    """
    changes = Changes(np.arange(16), np.array(at_s), np.array(left), np.full(len(at_s), float(beside)))
    star = peer.random_star(8, 8, 300, equal=False)._replace(changes=changes)
    want = peer.theirs(program, star)
    got = peer.ours(star)
    assert got == pytest.approx(want, rel=1e-8)
    assert sum(got) > 1.1 * sum(peer.ours(star._replace(changes=None)))
