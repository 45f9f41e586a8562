"""Results files of a sweep or plan that was stopped, beside the file of one that was not."""

from __future__ import annotations

from paceline.sweeping.results_file import with_place


def finished_lines(journal: bytes) -> set[bytes]:
    """The whole lines of a journal as they stand in the finished file."""
    return {with_place(line, None) for line in journal.splitlines(keepends=True) if line.endswith(b"\n")}
