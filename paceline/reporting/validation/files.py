"""The files of a validation: its page, its section of a Markdown file, its tables, and rows that a discrepancy can be estimated from."""

from __future__ import annotations

import csv
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

    def check(self, reads: Sequence[Path] = (), *, tables: Sequence[str] = ()) -> None:
        """Make sure, before the work, that all can be written and replace nothing of anybody else's.

        Parameters
        ----------
        reads
            Files that are read.
        tables
            Patterns of the names that files of ``tables`` will have.

        Raises
        ------
        InputError
            One cannot, or two are the same.
        """
        self._outputs(reads)
        if self.tables is not None:
            try:
                check_folder(self.tables)
            except InputError as error:
                raise InputError(f"`tables`: {error}") from None
            for file in sorted(file for pattern in tables for file in self.tables.glob(pattern)):
                Output(file, _TABLE, force=self.force, argument="tables", beside=True, reads=reads)
        if self.markdown is not None:
            check_document(_document(self.markdown), f"`markdown`: {str(self.markdown)!r}")
        check_apart((f"`{name}`", path) for name, path in self._paths())

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

    def _outputs(self, reads: Sequence[Path] = ()) -> dict[str, Output]:
        return {name: Output(path, _KINDS[name], force=self.force, argument=name, reads=reads) for name, path in self._paths()}

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
        outputs = self._outputs()
        if self.out is not None:
            write_validation(validation, self.out, force=self.force)
        if self.markdown is not None:
            outputs["markdown"].write(place_section(_document(self.markdown), validation, links))
        if self.rows is not None:
            outputs["rows"].write(rows_to_csv(validation.rows))


def _holds_table(path: Path) -> bool:
    """Whether a file may be one of the tables; of which columns each is, only the validation tells."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header = next(csv.reader(file), [])
    except (UnicodeDecodeError, csv.Error):
        return False
    return header[: len(_SETTINGS)] == _SETTINGS or (len(header) >= len(_SETTINGS) // 2 and all(map(_COLUMN.fullmatch, header)))


_SETTINGS = ["name", "group", "fitted", "unit", "repeats", "measured"]
"""What the heading of a table of settings begins with; of other tables there are a few columns, with such names."""
_COLUMN = re.compile(r"[a-z_]+")
_TABLE = OutputKind("is no table of such a validation", _holds_table)


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
