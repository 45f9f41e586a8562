"""A few of many cases in ``make test``; all of them in ``make test-all``."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

from support.examples import ALL

SHARE = 1 if settings.get_current_profile_name() == ALL else 4
"""Of so many cases one is tried: of all with ``pytest --hypothesis-profile=all``."""


def a_few(cases: Iterable[Any], count: int, seed: int = 0) -> list[Any]:
    """All cases, of which so many are drawn by a seed; the others are ``long``. A case of several arguments is a tuple."""
    every = [case if isinstance(case, tuple) else (case,) for case in cases]
    drawn = set(random.Random(seed).sample(range(len(every)), count))
    return [pytest.param(*case, marks=() if place in drawn else (pytest.mark.long,)) for place, case in enumerate(every)]


def seeds(count: int) -> range:
    """So many seeds, or one of :data:`SHARE` of them."""
    return range(-(-count // SHARE))
