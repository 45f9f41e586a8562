"""The files of a validation: its page, its section of a Markdown file, its tables, and rows that a discrepancy can be estimated from."""

from __future__ import annotations

import csv
import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrate.testbed.platform import MACHINE
from calibrate.validation.comparison import rows_to_csv
from calibrate.validation.validation import Validation
from paceline.reporting.tables import write_tables
from paceline.reporting.validation.content import check_document, csv_tables, place_section
from paceline.reporting.validation.page import VALIDATION_PAGE, write_validation
from simulator.errors import InputError
from simulator.outputs import EDITED, Output, OutputKind, check_apart, check_folder, has_header

__all__ = ["ValidationFiles"]


@dataclass(frozen=True)
class ValidationFiles:
    """What is to be written of a validation; None: not that.

    Attributes
    ----------
    out
        A page, HTML.
    markdown
        A Markdown file whose section of this kind of validation is replaced.
    rows
        CSV.
    tables
        A folder of CSV files, which the section in ``markdown`` then has links to.
    scenario, platform, matrix
        Files that are written beside these, by somebody else.
    force
        Whether files may be replaced that are something else.
    """

    out: Path | None = None
    markdown: Path | None = None
    rows: Path | None = None
    tables: Path | None = None
    scenario: Path | None = None
    platform: Path | None = None
    matrix: Path | None = None
    force: bool = False

    def check(self, key: str, reads: Sequence[Path] = ()) -> None:
        """Make sure, before the work, that all can be written and replace nothing of anybody else's.

        Parameters
        ----------
        key
            Of the validation, with which the names of its tables begin.
        reads
            Files that are read.

        Raises
        ------
        InputError
            One cannot, or two are the same.
        """
        for name, path in self._paths():
            self._output(name, path, reads)
        if self.tables is not None:
            try:
                check_folder(self.tables)
            except InputError as error:
                raise InputError(f"`tables`: {error}") from None
            self._check_tables(self.tables, key, reads)
        if self.markdown is not None:
            check_document(_document(self.markdown), f"`markdown`: {str(self.markdown)!r}")
        check_apart((f"`{name}`", path) for name, path in self._paths())

    def _check_tables(self, folder: Path, key: str, reads: Sequence[Path]) -> None:
        """Refuse what has the name of a table and is none; of which columns each is, only the validation will tell."""
        of_settings, others = folder / f"{key}.csv", sorted(folder.glob(glob.escape(f"{key}-") + "*.csv"))
        for file, kind in ((of_settings, _OF_SETTINGS), *((other, _OF_ANY) for other in others)):
            Output(file, kind, force=self.force, argument="tables", beside=True, reads=reads)

    def _paths(self) -> Iterator[tuple[str, Path]]:
        named = (
            ("out", self.out),
            ("markdown", self.markdown),
            ("rows", self.rows),
            ("out_scenario", self.scenario),
            ("out_matrix", self.matrix),
            ("platform", self.platform),
        )
        yield from ((name, path) for name, path in named if path is not None)

    def _output(self, name: str, path: Path, reads: Sequence[Path] = ()) -> Output:
        return Output(path, _KINDS[name], force=self.force, argument=name, reads=reads)

    def write(self, validation: Validation) -> None:
        """Write what was asked for, but the files of somebody else.

        Raises
        ------
        InputError
            A file cannot be written, or something else has come to lie there.
        """
        links = None
        if self.tables is not None:
            made = {name: replace(table, name=name.removesuffix(".csv")) for name, table in csv_tables(validation).items()}
            write_tables(tuple(made.values()), self.tables, force=self.force)
            beside = Path() if self.markdown is None else self.markdown.parent
            links = {name: Path(os.path.relpath(self.tables / name, beside)).as_posix() for name in made}
        if self.out is not None:
            write_validation(validation, self.out, force=self.force)
        if self.markdown is not None:
            self._output("markdown", self.markdown).write(place_section(_document(self.markdown), validation, links))
        if self.rows is not None:
            self._output("rows", self.rows).write(rows_to_csv(validation.rows))


def _heading(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def _is_of_settings(path: Path) -> bool:
    return _heading(path)[: len(_SETTINGS)] == _SETTINGS


def _is_of_any(path: Path) -> bool:
    heading = _heading(path)
    return heading[: len(_SETTINGS)] == _SETTINGS or (len(heading) > 2 and all(map(_COLUMN.fullmatch, heading)))


_SETTINGS = ["name", "group", "fitted", "unit", "repeats", "measured"]
"""What the heading of a table of settings begins with."""
_COLUMN = re.compile(r"[a-z_]+")
_OF_SETTINGS = OutputKind("is no table of a validation's settings", _is_of_settings)
_OF_ANY = OutputKind("is no table of a validation", _is_of_any)


def _is_markdown(path: Path) -> bool:
    return path.suffix.lower() in (".md", ".markdown") or "<!-- begin paceline validate: " in _document(path)


_KINDS = {
    "out": VALIDATION_PAGE,
    "markdown": OutputKind("is no Markdown file (NAME.md)", _is_markdown),
    "rows": OutputKind("holds no such rows", lambda path: has_header(path, next(csv.reader([rows_to_csv(())])))),
    "out_scenario": EDITED,
    "out_matrix": EDITED,
    "platform": MACHINE,
}


def _document(path: Path) -> str:
    """What a Markdown file holds so far."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError:
        raise InputError(f"`markdown`: {str(path)!r}: is no text in UTF-8; choose another file") from None
