"""Base class of what a person prints at a prompt: ``repr`` in one line, ``print`` in a few, with how to see more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar


class Short:
    """Base of what is shown in short: first what it is, then what matters most of it.

    Attributes
    ----------
    see
        How to see more, in words.
    """

    see: ClassVar[str] = ""

    def _in_short(self) -> Iterator[str]:
        """What it is, then facts, each in a few words."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'; '.join(filter(None, self._in_short()))}>"

    def __str__(self) -> str:
        first, *rest = filter(None, self._in_short())
        more = (f"More: {self.see}",) if self.see else ()
        return "\n  ".join((f"{type(self).__name__}: {first}", *rest, *more))
