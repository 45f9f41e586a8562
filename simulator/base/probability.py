"""Quantiles and tails of distributions that the simulator needs, so that it does without scipy; to about 1e-14 the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=1024)
def student_quantile(probability: float, freedom: int) -> float:
    """Quantile above the median of Student's t distribution, whose share has a closed form (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = freedom % 2

    def inside(angle: float) -> float:
        cosine, terms = math.cos(angle), []
        term = cosine if odd else 1.0
        for power in range(odd, freedom - 1, 2):
            terms.append(term)
            term *= cosine * cosine * (power + 1) / (power + 2)
        share = math.sin(angle) * math.fsum(terms)
        return 2.0 / math.pi * (angle + share) if odd else share

    return math.tan(_last_below(lambda angle: inside(angle) < 2.0 * probability - 1.0, 0.0, math.pi / 2)) * math.sqrt(freedom)


def gamma_tail(shape: float, value: float) -> float:
    """Probability that a gamma variable of scale 1 exceeds a value: Q(a, x), by series or continued fraction (DLMF 8.7.1, 8.9.2)."""
    front = math.exp(shape * math.log(value) - value - math.lgamma(shape)) if value > 0 else 0.0
    if value < shape + 1.0:
        term = total = 1.0 / shape
        number = shape
        while term > 1e-17 * total:
            number += 1.0
            term *= value / number
            total += term
        return 1.0 - front * total
    fraction = 0.0
    for number in range(_DEPTH, 0, -1):
        fraction = number * (shape - number) / (value + 2 * number + 1.0 - shape + fraction)
    return front / (value + 1.0 - shape + fraction)


_DEPTH = 500
"""Terms of the continued fraction, which needs most near its mean."""


def gamma_tail_quantile(shape: float, log_chance: float) -> float:
    """Value that a gamma variable of scale 1 exceeds with probability exp(-log_chance), of at most a third."""
    most = shape + math.sqrt(2.0 * shape * log_chance) + log_chance  # Boucheron, Lugosi and Massart 2013, section 2.4
    return _last_below(lambda value: gamma_tail(shape, value) > math.exp(-log_chance), 0.0, most)


def _last_below(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition that holds at first ends, by halving."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low
