"""Writes the files of a validation: its page, its section of a Markdown file, its tables, and rows for estimating discrepancies.

:meth:`ValidationFiles.check` refuses before the work what could not be written after it. The rows are the CSV of
:mod:`calibrate.validation.comparison`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calibrate.testbed.platform import MACHINE
from calibrate.validation.comparison import rows_to_csv
from calibrate.validation.validation import Outline, Validation
from paceline.reporting.tables import write_tables
from paceline.reporting.validation.content import check_document, csv_tables, details_file, place_section, settings_file
from paceline.reporting.validation.page import VALIDATION_PAGE, write_validation
from simulator.base.errors import InputError
from simulator.base.files import EDITED, Output, OutputKind, check_apart, check_folder, csv_kind, has_header, heading_of


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
    _tables: dict[str, Output] = field(default_factory=dict, init=False, repr=False)

    def check(self, outlines: Sequence[Outline], reads: Sequence[Path] = ()) -> None:
        """Make sure, before the work, that all can be written and replace nothing of anybody else's.

        Parameters
        ----------
        outlines
            Of each validation that it may become, what its tables are.
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
            check_folder(self.tables, "tables")
            for outline in outlines:
                for name, kind in kinds_of_tables(outline).items():
                    self._tables[name] = Output(self.tables / name, kind, force=self.force, argument="tables", reads=reads)
        if self.markdown is not None:
            check_document(_document(self.markdown), f"`markdown`: {str(self.markdown)!r}")
        tables = [("tables", output.path) for output in self._tables.values()]
        check_apart((f"`{name}`", path) for name, path in (*self._paths(), *tables))

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
        """Write what was asked for, and :meth:`check` found to be possible, but the files of somebody else; the tables last.

        Raises
        ------
        InputError
            A file cannot be written, or something else has come to lie there.
        """
        made = {} if self.tables is None else csv_tables(validation)
        if self.out is not None:
            write_validation(validation, self.out, force=self.force)
        if self.markdown is not None:
            links = {name: Path(os.path.relpath(self._tables[name].path, self.markdown.parent)).as_posix() for name in made}
            section = place_section(_document(self.markdown), validation, links if made else None)
            self._output("markdown", self.markdown).write(section)
        if self.rows is not None:
            self._output("rows", self.rows).write(rows_to_csv(validation.rows))
        write_tables(made, self._tables)


def kinds_of_tables(outline: Outline) -> dict[str, OutputKind]:
    """What each file may replace that a table becomes, by its name: of settings, only the validation tells all columns."""
    settings = {settings_file(outline.key, family): _OF_SETTINGS for family in outline.families}
    return settings | {details_file(outline.key, its): csv_kind([column.name for column in its.columns]) for its in outline.details}


_SETTINGS = ["name", "group", "fitted", "unit", "repeats", "measured"]
"""What the heading of a table of settings begins with."""
_OF_SETTINGS = OutputKind("is no table of a validation's settings", lambda path: heading_of(path)[: len(_SETTINGS)] == _SETTINGS)


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
