"""What a sweep gives back: its outcomes in order, read from the journal when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, overload

from paceline.sweeping.stored import StoredLines
from simulator.errors import SimulationError
from simulator.results import Failure, Result
from simulator.table import frame_of, html_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Sweep"]

Outcome = Result | Failure
_NAMED = 3


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Sequence[Outcome]):
    """Outcomes of a sweep, in the order of its scenarios.

    Those that were written to a file are read from it whenever they are asked for; going
    through them one by one takes no more memory than one.

    Attributes
    ----------
    path
        The results file; None where all outcomes are held.
    """

    path: Path | None
    _outcomes: tuple[Outcome, ...] | StoredLines = field(repr=False)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        where = "" if self.path is None else f" in {self.path}"
        return f"<Sweep: {len(self)} scenarios{where}>"

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[Outcome]: ...
    def __getitem__(self, index: int | slice) -> Outcome | list[Outcome]:
        places = range(len(self))[index]
        return self._outcomes[places] if isinstance(places, int) else [self._outcomes[place] for place in places]

    def to_frame(self) -> pd.DataFrame:
        """A row a scenario: the settings that differ, then :data:`simulator.rows.COLUMNS`."""
        return frame_of(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, with the most important figures."""
        return html_of(self, f"Sweep of {len(self)} scenarios", total=len(self))

    @property
    def results(self) -> tuple[Result, ...]:
        """All results, without the failures; equal workloads and clusters of theirs are one object."""
        return tuple(outcome for outcome in self if isinstance(outcome, Result))

    @property
    def failed(self) -> Sequence[int]:
        """Numbers, from 0, of the scenarios that could not be simulated."""
        held = self._outcomes
        return held.failed if isinstance(held, StoredLines) else [at for at, its in enumerate(held) if isinstance(its, Failure)]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Scenarios that could not be simulated, and why."""
        return tuple(outcome for outcome in (self[place] for place in self.failed) if isinstance(outcome, Failure))

    def check(self, name: Callable[[int], str] | None = None) -> None:
        """Do nothing where every scenario has a result.

        Parameters
        ----------
        name
            What to call scenario 0, 1, ...; left out: by number, from 1.

        Raises
        ------
        SimulationError
            Some failed; the message tells the reasons of the first.
        """
        if not self.failed:
            return
        called = name if name is not None else (lambda place: f"scenario {place + 1}")
        first = [f"{called(place)}: {its.failed.text}" for place in self.failed[:_NAMED] if isinstance(its := self[place], Failure)]
        more = f"; and {len(self.failed) - len(first)} more" if len(self.failed) > len(first) else ""
        kept = "" if self.path is None else f"; {self.path} tells of them all, --retry-failed simulates them again"
        raise SimulationError(f"{len(self.failed)} of {len(self)} scenarios failed: {'; '.join(first)}{more}{kept}")
