"""Contribution of each uncertain quantity to the variance of an answer, from the draws of its runs.

Sobol' indices from given runs, by a sparse polynomial expansion, with no further simulation; ``drawn_quantities`` of
:mod:`simulator.resolve.drawing` lists the quantities, :mod:`simulator.results.next_measurement` uses the shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EQUAL = 1e-9
"""Logarithms closer than this differ only by rounding."""
_DEGREE = 2
"""Largest degree of polynomials in few runs: with 19, a third power cannot be distinguished from chance."""
_RUNS_A_DEGREE = 8
"""Terms of a degree d above that take at least this times 2**d runs: a third power 64."""


class Contributed(NamedTuple):
    """Shares of the variance over runs due to one quantity.

    Attributes
    ----------
    first
        Share expected to vanish if only this quantity were known (Sobol', "Sensitivity estimates for nonlinear mathematical models",
        1993).
    total
        Share left if all others were known, interactions included (Homma and Saltelli, "Importance
        measures in global sensitivity analysis of nonlinear models", 1996).
    """

    first: float
    total: float


class Decomposition(NamedTuple):
    """Parts of the variance over runs.

    Attributes
    ----------
    shares
        Of each quantity.
    chance
        Share that no quantity explains: chance between runs, and the remainder of a low polynomial.
    errors
        Standard errors of the shares by the jackknife; empty if not requested, or without quantities.
    """

    shares: Mapping[str, Contributed]
    chance: float
    errors: Mapping[str, Contributed]


def decomposed(values: Array, quantities: Mapping[str, Array], *, errors: bool = True) -> Decomposition:
    """First-order and total shares of the variance of values due to each of some independent quantities.

    The values are expanded in products of polynomials that are orthonormal over the draws of each quantity (arbitrary polynomial chaos:
    Oladyshkin and Nowak, Reliability Engineering and System Safety 106, 2012), up to the second degree in few runs. Terms enter one at a
    time, the one that explains most of what is left; as many are kept as have the least leave-one-out error, corrected for their number
    (Blatman and Sudret, Probabilistic Engineering Mechanics 25, 2010, equations 23 to 26; Chapelle, Vapnik and Bengio 2002). The squares
    of coefficients are the indices (Sudret, Reliability Engineering and System Safety 93, 2008), each less its own sampling variance,
    and together no more than the adjusted share of the variance that the terms explain (Theil 1961), so that draws that do nothing get
    nothing in the mean. A quantity of several numbers, which may depend on each other, is a group and has one pair of shares.

    Standard errors are those of the jackknife over runs (Efron and Stein, Annals of Statistics 9, 1981), the choice of terms included, but
    no less than a normal regression has of n runs: sqrt(4 s c / n + 2 c^2 / n^2) of a share s beside one of chance c.

    Parameters
    ----------
    values
        Value of each run, such as the logarithm of its throughput, shape (n,).
    quantities
        Draws of each run, shape (n, numbers), preferably transformed to be nearly normal.
    errors
        Whether to compute standard errors too.
    """
    shares, chance = _shares(values, quantities)
    if not errors or not quantities:
        return Decomposition(shares, chance, {})
    kept = ~np.eye(len(values), dtype=bool)
    without = [_shares(values[runs], {name: draws[runs] for name, draws in quantities.items()})[0] for runs in kept]
    errors_of = {}
    for name, share_of in shares.items():
        left = zip(*(shares_without[name] for shares_without in without), strict=True)
        errors_of[name] = Contributed(*(_error(share, each, chance) for share, each in zip(share_of, left, strict=True)))
    return Decomposition(shares, chance, errors_of)


def _error(share: float, without: tuple[float, ...], chance: float) -> float:
    """Standard error of a share, from its values without each run."""
    sample, count = np.array(without), len(without)
    away = sample - np.add.reduce(sample) / count
    of_regression = math.sqrt(4.0 * share * chance / count + 2.0 * (chance / count) ** 2)
    return max(math.sqrt((count - 1) / count * _square(away)), of_regression)


def _degree(count: int) -> int:
    """Largest degree of terms for a number of runs."""
    return max(_DEGREE, int(math.log2(max(count / _RUNS_A_DEGREE, 1.0))))


class _Term(NamedTuple):
    """A standardised polynomial of one quantity, or a product of two: its values, of which quantities, and its kind."""

    column: Array
    of: frozenset[str]
    kind: int  # 1: of the first degree, 2: of a higher one, 3: a product


_PRODUCT = 3


def _terms(count: int, quantities: Mapping[str, Array]) -> list[_Term]:
    """All candidate terms."""
    degree = _degree(count)
    pure: list[tuple[_Term, int]] = []
    for name, draws in quantities.items():
        basis: list[Array] = []
        numbers = [number for number in (_standardised(column, basis) for column in draws.T) if number is not None]
        for power in range(1, degree + 1):
            for number in numbers:
                column = _standardised(number**power, basis)
                if column is not None:
                    basis.append(column)
                    pure.append((_Term(column, frozenset([name]), min(power, 2)), power))
    products = [
        _Term(column, term.of | other.of, _PRODUCT)
        for (term, power), (other, further) in combinations(pure, 2)
        if term.of != other.of and power + further <= degree and (column := _standardised(term.column * other.column)) is not None
    ]
    return [*(term for term, _ in pure), *products]


def _standardised(column: Array, basis: list[Array] | None = None) -> Array | None:
    """Values with mean 0 and variance 1, orthogonal to a basis; None if nothing is left."""
    left: Array = column - np.add.reduce(column) / len(column)
    whole = _square(left)
    for other in basis or ():
        left = left - other * (np.add.reduce(left * other) / len(left))
    square = _square(left)
    if math.sqrt(whole / len(left)) <= _EQUAL or square <= _EQUAL * whole:
        return None
    return left * math.sqrt(len(left) / square)


def _square(values: Array) -> float:
    # not by BLAS, whose rounding depends on the processor
    return float(np.add.reduce(values * values))


def _shares(values: Array, quantities: Mapping[str, Array]) -> tuple[dict[str, Contributed], float]:
    """Shares of each quantity, and of chance."""
    terms = _terms(len(values), quantities)
    nothing = dict.fromkeys(quantities, Contributed(0.0, 0.0))
    count = len(values)
    away = values - np.add.reduce(values) / count
    variance = _square(away) / max(count - 1, 1)
    if count < _FEWEST or math.sqrt(variance) <= _EQUAL:
        return nothing, 1.0 if math.sqrt(variance) > _EQUAL else 0.0
    expansion = _expanded(away, terms)
    if not expansion.places:
        return nothing, 1.0
    noise = _square(expansion.left) / (count - 1 - len(expansion.places))
    explained = max(1.0 - noise / variance, 0.0)
    weights = _weights(away, [terms[place].column for place in expansion.places], expansion.basis, noise)
    whole = math.fsum(weights)
    if not whole or not explained:
        return nothing, 1.0
    first, total = dict.fromkeys(quantities, 0.0), dict.fromkeys(quantities, 0.0)
    for place, weight in zip(expansion.places, weights, strict=True):
        of, share = terms[place].of, explained * weight / whole
        for name in of:
            total[name] += share
            if len(of) == 1:
                first[name] += share
    return {name: Contributed(first[name], total[name]) for name in quantities}, 1.0 - explained


_FEWEST = 4
"""Runs of which a term may explain anything."""


@dataclass(frozen=True, eq=False)
class _Expansion:
    """Terms that have entered."""

    columns: Array  # all terms, a row each, less what is along those that have entered
    alone: Array  # square of each row before any had
    left: Array  # what those that have entered leave of the values
    leverage: Array  # of each run
    places: tuple[int, ...] = ()  # of the terms that have entered, in order
    basis: tuple[Array, ...] = ()  # of these, orthonormal

    def next(self, open_: NDArray[np.bool_]) -> _Expansion | None:
        """Add the candidate term that explains most of the remainder; None if none explains anything."""
        squares = np.add.reduce(self.columns * self.columns, axis=1)
        along = np.add.reduce(self.columns * self.left, axis=1)
        can = open_ & (squares > _ALIKE * self.alone)
        can[list(self.places)] = False
        gains = np.where(can, along * along / np.maximum(squares, _ALIKE * self.alone), 0.0)
        place = int(gains.argmax())
        if gains[place] <= 0.0:
            return None
        direction = self.columns[place] / math.sqrt(squares[place])
        return _Expansion(
            columns=self.columns - np.add.reduce(self.columns * direction, axis=1)[:, None] * direction,
            alone=self.alone,
            left=self.left - direction * np.add.reduce(self.left * direction),
            leverage=self.leverage + direction * direction,
            places=(*self.places, place),
            basis=(*self.basis, direction),
        )

    @cached_property
    def error(self) -> float:
        """Mean square of what is left of each run where it takes no part in the fit, corrected for the number of terms."""
        count, size = len(self.left), len(self.places)
        return _square(self.left / np.maximum(1.0 - self.leverage, _EQUAL)) * (1.0 + size / count) / (count - size)


_ALIKE = 0.1
"""Minimum share of a term's square that is orthogonal to the entered terms: more similar terms cannot be distinguished."""


def _expanded(away: Array, terms: list[_Term]) -> _Expansion:
    """Terms enter in the order of their kinds: of the first degree, of a single quantity, products.

    In few runs a product may look much like what is simpler, and in most models what is simpler matters more (effect hierarchy: Wu and
    Hamada, "Experiments", 2009, section 4.6). There products enter only of quantities that have (heredity, the same section).
    """
    count = len(away)
    columns = np.array([term.column for term in terms]).reshape(len(terms), count)
    best = _Expansion(columns, np.add.reduce(columns * columns, axis=1), away, np.full(count, 1.0 / count))
    few = _degree(count) == _DEGREE
    for kind in sorted({term.kind for term in terms}):
        there = {name for place in best.places for name in terms[place].of}
        open_ = np.array([term.kind == kind and (kind < _PRODUCT or not few or term.of <= there) for term in terms])
        trying: _Expansion | None = best
        while trying is not None and len(trying.places) < (count - 2) // 2:
            trying = trying.next(open_)
            if trying is not None and trying.error < best.error:
                best = trying
    return best


def _weights(away: Array, columns: list[Array], basis: Sequence[Array], noise: float) -> list[float]:
    """Square of each coefficient less its sampling variance, not below 0."""
    size = len(columns)
    upper = [[float(np.add.reduce(basis[row] * columns[column])) for column in range(size)] for row in range(size)]
    inverse = [[0.0] * size for _ in range(size)]
    for column in range(size):
        inverse[column][column] = 1.0 / upper[column][column]
        for row in range(column - 1, -1, -1):
            inverse[row][column] = -math.fsum(upper[row][k] * inverse[k][column] for k in range(row + 1, column + 1)) / upper[row][row]
    along = [float(np.add.reduce(away * direction)) for direction in basis]
    coefficients = [math.fsum(map(float.__mul__, inverse[row], along)) for row in range(size)]
    variances = [noise * math.fsum(each * each for each in inverse[row]) for row in range(size)]
    return [max(coefficient**2 - own, 0.0) for coefficient, own in zip(coefficients, variances, strict=True)]
