"""What a watch has said, one line each, so that one that is begun again does not say it twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simulator.base.errors import InputError
from simulator.base.files import check_writable
from simulator.base.validation_errors import quoted

_FORMAT = "paceline-watch"
_NO_JOURNAL = "is no journal of a watch"


class WatchJournal:
    """A file of events (NDJSON) that lines are added to, each as it is said.

    Parameters
    ----------
    path
        The file; None keeps nothing.
    watched
        What is watched: a journal of something else is refused.
    reads
        Files that it must not be.

    Attributes
    ----------
    events
        What was said, in order, before this watch and by it.

    Raises
    ------
    InputError
        It cannot be written, or holds something else.
    """

    def __init__(self, path: Path | None, watched: dict[str, Any], reads: tuple[Path, ...] = ()) -> None:
        self._path = path
        self.events: list[dict[str, Any]] = []
        if path is None:
            return
        for read in (None, *reads):
            check_writable(path, reads=read)
        self._cut = False
        lines = self._lines(path)
        if not lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"format": _FORMAT, **watched})
            return
        head, *self.events = lines
        if head.get("format") != _FORMAT:
            raise InputError(f"`journal`: {str(path)!r}: {_NO_JOURNAL}; choose another name")
        differ = [key for key, value in watched.items() if head.get(key) != value]
        if differ:
            shown = quoted(head.get(differ[0]))
            raise InputError(f"`journal`: {str(path)!r}: is of another watch ({differ[0]} {shown}); choose another name")

    def say(self, event: dict[str, Any]) -> None:
        """Keep what is said now."""
        self.events.append(event)
        if self._path is not None:
            self._append(event)

    def said_of(self, run: str) -> list[dict[str, Any]]:
        """What was said of a run, by its name."""
        return [event for event in self.events if event.get("run") == run]

    def _append(self, line: dict[str, Any]) -> None:
        assert self._path is not None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(("\n" if self._cut else "") + json.dumps(line) + "\n")
            self._cut = False
        except OSError as error:
            raise InputError(f"`journal`: {str(self._path)!r}: cannot be written: {error.strerror}; choose another path") from None

    def _lines(self, path: Path) -> list[dict[str, Any]]:
        """The lines; the last may be cut off, where a watch was killed while it wrote."""
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError):
            raise InputError(f"`journal`: {str(path)!r}: {_NO_JOURNAL}; choose another name") from None
        self._cut = bool(text) and not text.endswith("\n")
        found = []
        for line in text.splitlines():
            try:
                data = json.loads(line)
            except ValueError:
                data = None
            if isinstance(data, dict):
                found.append(data)
            elif not found:
                raise InputError(f"`journal`: {str(path)!r}: {_NO_JOURNAL}; choose another name")
        return found
