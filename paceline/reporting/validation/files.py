"""The files of a validation: its page, its section of a Markdown file, its tables, and rows that a discrepancy can be estimated from."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate.validation.comparison import rows_to_csv
from calibrate.validation.validation import Validation
from paceline.reporting.render import GENERATOR
from paceline.reporting.validation.content import check_document, csv_tables, place_section
from paceline.reporting.validation.page import write_validation
from simulator.errors import InputError
from simulator.files import check_folder, check_replaceable, check_writable, write_whole

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
    scenario, platform
        Files that are written beside these, by somebody else.
    force
        Whether files may be replaced that are no output of Paceline.
    """

    out: Path | None = None
    markdown: Path | None = None
    rows: Path | None = None
    tables: Path | None = None
    scenario: Path | None = None
    platform: Path | None = None
    force: bool = False

    def check(self, reads: Sequence[Path] = ()) -> None:
        """Make sure, before the work, that all can be written and replace nothing of anybody else's.

        Parameters
        ----------
        reads
            Files that are read.

        Raises
        ------
        InputError
            One cannot, or two are the same.
        """
        outputs = (
            ("out", self.out),
            ("markdown", self.markdown),
            ("rows", self.rows),
            ("out_scenario", self.scenario),
            ("platform", self.platform),
        )
        given = [(name, path) for name, path in outputs if path is not None]
        of_ours = {} if self.force else {"out": (_is_page, "is no page of Paceline"), "rows": (_holds_rows, "holds no such rows")}
        for name, path in given:
            try:
                check_writable(path)
                for read in reads:
                    check_writable(path, reads=read)
                if name in of_ours:
                    check_replaceable(path, *of_ours[name], hint="overwrite it with `force=True`, or choose another")
            except InputError as error:
                raise InputError(f"`{name}`: {error}") from None
        if self.scenario is not None and self.scenario.exists() and not self.force:
            raise InputError(
                f"`out_scenario`: {str(self.scenario)!r}: is there already; overwrite it with `force=True`, or choose another name"
            )
        if self.tables is not None:
            try:
                check_folder(self.tables)
            except InputError as error:
                raise InputError(f"`tables`: {error}") from None
        if self.markdown is not None:
            check_document(_document(self.markdown), f"`markdown`: {str(self.markdown)!r}")
        for (one, path), (other, second) in itertools.combinations(given, 2):
            if path.resolve() == second.resolve():
                raise InputError(f"`{one}` and `{other}`: both are {str(path)!r}; give two names")

    def write(self, validation: Validation) -> None:
        """Write what was asked for.

        Raises
        ------
        InputError
            A file cannot be written.
        """
        if self.out is not None:
            write_validation(validation, self.out)
        links = None
        if self.tables is not None:
            made = csv_tables(validation)
            for name, table in made.items():
                write_whole(self.tables / name, table.to_csv())
            beside = Path() if self.markdown is None else self.markdown.parent
            links = {name: Path(os.path.relpath(self.tables / name, beside)).as_posix() for name in made}
        if self.markdown is not None:
            write_whole(self.markdown, place_section(_document(self.markdown), validation, links))
        if self.rows is not None:
            write_whole(self.rows, rows_to_csv(validation.rows))


def _is_page(path: Path) -> bool:
    return GENERATOR in _start_of(path)


def _holds_rows(path: Path) -> bool:
    return _start_of(path).startswith(rows_to_csv(()).splitlines()[0])


def _start_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(4096).decode("utf-8", "replace")


def _document(path: Path) -> str:
    """What a Markdown file holds so far."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError:
        raise InputError(f"`markdown`: {str(path)!r}: is no text in UTF-8; choose another file") from None
