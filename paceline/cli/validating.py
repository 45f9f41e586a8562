"""What every use of ``paceline validate`` shares: thresholds, tables, files, exit code."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Score, Thresholds
from paceline.cli.showing import note
from paceline.reporting.validation.content import Validation
from simulator.errors import InputError
from simulator.files import check_writable, write_whole

__all__ = ["Wanted", "check_outputs", "finish", "machine", "share_of", "thresholds_of", "today"]

MISSED = 3
"""Exit code where a threshold is missed."""
_EXAMPLES = {"median": "2%", "worst": "6%", "staleness": "0.1", "distance": "0.1", "coverage": "80%"}


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for, whatever is validated."""

    thresholds: Thresholds
    out: Path | None = None
    markdown: Path | None = None
    rows: Path | None = None
    json: bool = False
    force: bool = False


def share_of(text: str, option: str, example: str = "2%") -> float:
    """A share as a person writes it: ``2%`` or ``0.02``.

    Raises
    ------
    InputError
        It is no number.
    """
    plain = text.strip()
    try:
        value = float(plain.removesuffix("%")) / (100.0 if plain.endswith("%") else 1.0)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise InputError(f"{option} {text[:40]!r}: must be a number from 0 on, such as {example}")
    if example.endswith("%") and value > 1 and not plain.endswith("%"):
        raise InputError(f"{option} {text[:40]!r}: is {value:.0%} as a share; write {plain}% or {value / 100:g}")
    return value


def thresholds_of(**texts: str | None) -> Thresholds:
    """Thresholds by their names, each as the option gives it.

    Raises
    ------
    InputError
        One is no number, or out of its range.
    """
    options = {name: f"--{'min' if name == 'coverage' else 'max'}-{name}" for name in texts}
    values = {name: share_of(text, options[name], _EXAMPLES[name]) for name, text in texts.items() if text is not None}
    try:
        return Thresholds(**values)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise InputError(f"{options[name]} {texts[name]!r}: must be at most 1, or 100%; such as {_EXAMPLES[name]}") from None


def today() -> str:
    """The date, to the minute."""
    return datetime.now().astimezone().isoformat(sep=" ", timespec="minutes")


def machine() -> str:
    """Processor, cores and Python of this machine, in words."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass  # not Linux
    cores = os.cpu_count() or 1
    return f"{name}, {cores} core{'s' if cores > 1 else ''}, Python {platform.python_version()}"


def check_outputs(wanted: Wanted, *reads: Path) -> None:
    """Make sure, before the work, that the page, the Markdown and the rows can be written and replace nothing of anybody else's.

    Raises
    ------
    InputError
        They cannot.
    """
    from paceline.reporting.render import GENERATOR

    outputs = ("--out", wanted.out), ("--markdown", wanted.markdown), ("--rows", wanted.rows)
    for option, path in outputs:
        if path is None:
            continue
        for read in reads:
            check_writable(path, reads=read)
        check_writable(path)
        if path.is_file() and option == "--out" and not wanted.force and GENERATOR not in (start := _start_of(path)) and start:
            raise InputError(
                f"{option} {str(path)!r}: is there already and is no page of Paceline; overwrite it with --force, or choose another"
            )
    if wanted.markdown is not None:
        from paceline.reporting.validation.markdown import check_document

        check_document(_document(wanted.markdown), f"--markdown {str(wanted.markdown)!r}")
    given = [(option, path) for option, path in outputs if path is not None]
    for (one, path), (other, second) in itertools.combinations(given, 2):
        if path.resolve() == second.resolve():
            raise InputError(f"{one} and {other}: both are {str(path)!r}; give two names")


def _start_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(4096).decode("utf-8", "replace")


def _document(path: Path) -> str:
    """What a Markdown file holds so far."""
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except UnicodeDecodeError:
        raise InputError(f"--markdown {str(path)!r}: is no text in UTF-8; choose another file") from None


def finish(validation: Validation, wanted: Wanted) -> None:
    """Show a validation, write its files, and end with exit code 3 where a threshold is missed.

    Every score is held against the thresholds, or those of the groups that the validation names.
    """
    checked = [score for score in validation.scores if not validation.checked or score.group in validation.checked]
    several = len(validation.scores) > 1
    missed = [f"{score.group}: {line}" if several else line for score in checked for line in wanted.thresholds.missed(score)]
    missed += _not_to_be_judged(wanted.thresholds, checked)
    validation = dataclasses.replace(validation, wanted=_asked(wanted.thresholds), missed=tuple(missed))
    if wanted.json:
        typer.echo(json.dumps(as_data(validation), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from paceline.cli.showing_validation import show_validation

        show_validation(validation)
    if wanted.out is not None:
        from paceline.reporting.validation.page import write_validation

        write_validation(validation, wanted.out)
        note(f"wrote {wanted.out}")
    if wanted.markdown is not None:
        from paceline.reporting.validation.markdown import place_section

        write_whole(wanted.markdown, place_section(_document(wanted.markdown), validation))
        note(f"wrote {wanted.markdown}")
    if wanted.rows is not None:
        from calibrate.validation.comparison import rows_to_csv

        write_whole(wanted.rows, rows_to_csv(validation.rows))
        note(f"wrote {wanted.rows}")
    for line in missed:
        note(f"paceline: threshold missed: {line}")
    if missed:
        raise typer.Exit(MISSED)


def _not_to_be_judged(thresholds: Thresholds, scores: Sequence[Score]) -> list[str]:
    """A sentence for each threshold that nothing was measured for: a gate must not pass because there was nothing to see."""
    given = thresholds.model_dump(exclude_none=True)
    if given and not scores:
        return ["no setting was held out, so there is nothing to judge"]
    seen = {
        "staleness": any(score.worst_staleness_error is not None for score in scores),
        "distance": any(score.worst_staleness_distance is not None for score in scores),
    }
    words = {"staleness": "mean staleness", "distance": "a distribution of staleness"}
    return [
        f"{words[name]} was not measured and predicted in any setting, so it cannot be judged"
        for name in seen
        if name in given and not seen[name]
    ]


def as_data(validation: Validation) -> dict[str, Any]:
    """What ``--json`` prints."""
    from paceline.reporting.validation.facts import summary

    return {
        "title": validation.title,
        "command": validation.command,
        "date": validation.date,
        "machine": validation.machine,
        "summary": summary(validation),
        "scores": [{**score.model_dump(mode="json"), "width_over_noise": score.width_over_noise} for score in validation.scores],
        "rows": [_row(row) for row in validation.rows],
        "notes": list(validation.notes),
        "thresholds": {"wanted": validation.wanted, "missed": list(validation.missed)},
        **validation.extra,
    }


def _row(row: Compared) -> dict[str, Any]:
    return {
        **row.model_dump(mode="json"),
        "measured_mean": row.mean,
        "error": row.error,
        "noise": row.noise,
        "repeats_inside": row.inside,
        "interval_score": row.interval_score,
        "staleness_error": row.staleness_error,
    }


def _asked(thresholds: Thresholds) -> str:
    """The thresholds in words; empty if there are none."""
    texts = {
        "median": "median error up to {:.3g}%",
        "worst": "worst error up to {:.3g}%",
        "staleness": "staleness within {:.3g} updates",
        "distance": "staleness distance up to {:.3g}",
        "coverage": "at least {:.3g}% inside the 90% interval",
    }
    values = thresholds.model_dump(exclude_none=True)
    return ", ".join(
        texts[name].format(value * 100 if "%" in texts[name].partition("}")[2][:1] else value) for name, value in values.items()
    )
