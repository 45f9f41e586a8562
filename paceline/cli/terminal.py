"""Writes to the terminal, and asks there: remarks, questions and progress on stderr; text, tables and JSON on stdout.

``note``, ``say``, ``display`` and ``printer`` show what is not printable as escapes, so that a name in a user's file cannot steer the
terminal; ``show_json`` writes JSON as it is. Not all output comes through here: app.py prints errors, and many commands write JSON with
``typer.echo``. ``print`` is allowed here and in app.py only (T201 in pyproject.toml); ``rich`` is imported inside functions.
What the bars yield is given to the library as ``progress``, so its arguments are fixed: done and total, of ``stages_bar`` also what.
``evidence/__main__.py`` uses this file too, and tests/cli/test_sweep.py sets ``_EVERY_S``. At the end is what calibrating commands share:
the provenance is read by its keys, which the fits in ``calibrate/fit`` write.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import typer

from paceline.cli.ending import keeping
from paceline.cli.options import Given, command_line
from simulator.base.errors import CalibrationWarning
from simulator.base.text import format_rough_seconds, printable

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from paceline.answers import Answer
    from paceline.lengthy import Agree, Lengthy
    from simulator.base.table import Table
    from simulator.spec.cluster import Cluster
    from simulator.spec.input_pipeline import InputPipeline

Advance = Callable[[float, int], None]


def note(message: str) -> None:
    """A remark for the person at the terminal."""
    print(printable(message), file=sys.stderr)


def remark(message: str) -> None:
    """A remark of the library's, with arguments as options."""
    from paceline.cli.options import in_options

    note(in_options(message))


def say(text: str = "", *, end: str = "\n") -> None:
    """Text for a person, on stdout; names that a user has given are escaped."""
    print(printable(text), end=end)


@cache
def _console_class() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Printable(Console):
        """A console on which nothing that a user has named is obeyed: what is not printable is shown as escapes."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return Printable


def printer(**options: Any) -> Console:
    """A console of rich for the terminal, with its ``options``; every table and text is shown on one."""
    return _console_class()(**options)


class Styled(NamedTuple):
    """A text for the terminal: in a style of rich's, so many characters from the left."""

    text: str
    style: str = ""
    indent: int = 0


Part: TypeAlias = "str | Styled | Table | RenderableType"
"""What begins on a line of its own: a text, a table, or anything that rich shows."""


def display(*parts: Part) -> None:
    """Texts and tables on stdout; in texts no markup of rich's is obeyed."""
    from rich.padding import Padding
    from rich.text import Text

    from simulator.base.table import Table

    console = printer()
    for part in parts:
        if isinstance(part, Table):
            console.print(part.to_rich())
        elif isinstance(part, (str, Styled)):
            text, style, indent = Styled(part) if isinstance(part, str) else part
            console.print(Padding(Text(text), (0, 0, 0, indent)) if indent else Text(text), style=style)
        else:
            console.print(part)


def display_answer(answer: Answer, *more: Part, footer: str = "") -> None:
    """Headline, small table and labelled lines of an answer, then ``more``, and a ``footer`` that says where the rest is."""
    display(Styled(answer.headline, "bold"), "")
    if answer.figures:
        display(_figures_grid(answer), "")
    if answer.lines:
        display(labelled((label, text.replace("`", "")) for label, text in answer.lines))
    for part in more:
        display("", part)
    if footer:
        display("", Styled(footer, "dim"))


def _figures_grid(answer: Answer) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 3, 0, 0))
    rows = [(figure.what, figure.mean, figure.interval, figure.note) for figure in answer.figures]
    columns = [place for place in range(4) if any(row[place] for row in rows)]
    for row in [("", "mean", "90% interval", ""), *rows]:
        grid.add_row(*(Text(printable(row[place]), style="dim" if row[1] == "mean" else "") for place in columns))
    return grid


def labelled(lines: Iterable[tuple[str, str]]) -> RenderableType:
    """Labels with texts next to them, in two columns; what to watch out for is in colour."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for label, text in lines:
        grid.add_row(label, Text(text), style="yellow" if label in ("Watch out", "warning") else None)
    return grid


def show_json(data: Any) -> None:
    """Plain data on stdout, as JSON; nothing is escaped beyond what JSON does."""
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def asking(where: object, *, yes: bool) -> Agree:
    """Return what the library calls before lengthy work: asks at the terminal, or with ``yes`` goes on without a question.

    Parameters
    ----------
    where
        What the work is about, such as the scenario's file.
    yes
        Whether ``--yes`` is given.

    Raises
    ------
    InputError
        By the function that is returned: the work takes long, there is nobody to ask, and ``yes`` is not set.
    Exit
        By the function that is returned: the answer was no.
    """

    def agree(work: Lengthy) -> None:
        import typer

        from simulator.base.errors import InputError

        if work.limit_s is None:
            note(f"{where}: {work.what}")
        elif yes:
            return
        elif not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError(f"{where}: {work.what}; more than {format_rough_seconds(work.limit_s)} needs --yes; or {work.instead}")
        elif not typer.confirm(f"paceline: {where}: {work.what}. Go on?", err=True):
            raise typer.Exit(InputError.exit_code)

    return agree


@contextmanager
def progress_bar(title: str, *, soon: bool = False) -> Iterator[Advance]:
    """Progress on stderr with the time left; call what it gives with work done and work in all.

    A bar where stderr is a terminal; else a line now and then, so that a log shows life, ``soon`` one after a second. What
    was done before the first call does not count towards the time left.
    """
    shown = printer(stderr=True)
    if not shown.is_terminal:
        yield _progress_lines(title, _SOON_S if soon else _EVERY_S)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=shown, transient=True, speed_estimate_period=_SPEED_OVER_S)
    task = bar.add_task(title, total=None)
    begun = False

    def advance(done: float, total: int) -> None:
        nonlocal begun
        if begun:
            bar.update(task, completed=done, total=total)
        else:
            bar.reset(task, completed=int(done), total=total)
            bar.start()  # not sooner: something may be asked first
        begun = True

    try:
        yield advance
    finally:
        bar.stop()


_SPEED_OVER_S = 600.0
_EVERY_S, _SOON_S = 30.0, 1.0


@contextmanager
def stages_bar(*, soon: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """Progress of work of several parts: a bar for each, titled by what is counted; ``soon`` as of :func:`progress_bar`."""
    bars: dict[str, Advance] = {}
    with ExitStack() as shown:

        def advance(done: int, total: int, what: str) -> None:
            if what not in bars:
                shown.close()
                bars[what] = shown.enter_context(progress_bar(what, soon=soon))
            bars[what](done, total)

        yield advance


def _progress_lines(title: str, first_after_s: float) -> Advance:
    """Progress in lines, at most one each half minute, the first after some seconds."""
    first: tuple[float, float] | None = None
    next_s = 0.0

    def advance(done: float, total: int) -> None:
        nonlocal first, next_s
        now_s = time.monotonic()
        if first is None:
            first, next_s = (now_s, done), now_s + first_after_s
        elif now_s >= next_s:
            begun_s, before = first
            left = f", about {format_rough_seconds((now_s - begun_s) / (done - before) * (total - done))} left" if done > before else ""
            note(f"{title}: {_count(done)} of {total:,}{left}")
            next_s = now_s + _EVERY_S

    return advance


def _count(done: float) -> str:
    """A number of things done, of which the last may be under way."""
    return f"{done:,}" if done == int(done) else f"{done:,.2f}"


FittedT = TypeVar("FittedT", "InputPipeline", "Cluster")


@contextmanager
def measuring() -> Iterator[Callable[[int, int, str], None]]:
    """Progress of measurements; where they are stopped, what the library says that is kept of them; warnings in boxes.

    Raises
    ------
    StoppedError
        It was stopped.
    """
    with warning_loudly(), stages_bar() as progress, keeping():
        yield progress


def run_measured(calibrate: Callable[..., FittedT], given: Given, folder: str) -> tuple[FittedT, Path, Path]:
    """What a function of the library fits to new or earlier measurements; the file of that in ``folder``, and that of the measurements."""
    path = given.get("out") or Path("models") / folder / f"{given['name']}.toml"
    with measuring() as progress:
        fitted = calibrate(**{**given, "out": path}, command=command_line(), progress=progress)
    earlier = given.get("from_measurements") or given.get("from_table")
    return fitted, path, earlier or given["measurements"] / fitted.provenance["measurements"]


@contextmanager
def warning_loudly() -> Iterator[None]:
    """Around a calibration: what was measured and is not to be relied on is said at the end, in boxes on stderr."""
    from rich.panel import Panel

    loud: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", CalibrationWarning)
        show = warnings.showwarning

        def keep(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, CalibrationWarning):
                loud.append(str(message))
            else:
                show(message, category, *rest, **named)

        warnings.showwarning = keep
        yield
    for text in loud:
        printer(stderr=True).print(Panel(f"WARNING: {text}", style="bold red", expand=False), markup=False)


def print_fitted(fitted: BaseModel, path: Path, raw: Path, *, exclude_none: bool = True, **more: object) -> None:
    """What was fitted on stdout, as JSON: with its file, that of its measurements, and what is known ``more``."""
    data = fitted.model_dump(mode="json", exclude={"uncertainty"}, exclude_none=exclude_none)
    typer.echo(json.dumps({**data, "file": str(path), "measurements": str(raw), **more}, indent=2))


def note_of_file(path: Path, section: str, *, beside: str, init: bool = True, scenario: str = "ring") -> None:
    """What was written, and what to type next.

    Parameters
    ----------
    path
        The file that was fitted.
    section
        Of a scenario, which names it.
    beside
        Where the measurements are, in words.
    init
        Whether ``paceline init`` takes it too.
    scenario
        Of the catalogue, to try it with.
    """
    note(f"wrote {path}; {beside}")
    use = shlex.quote(str(path.stem if path.parent == Path("models") / f"{section}s" else path))
    mine = f", or make a scenario of your own with it: paceline init --{section} {use}" if init else ""
    note(f"next: paceline simulate {scenario} --set {section}.use={use}{mine}")


def note_of_measurements(provenance: Mapping[str, str]) -> None:
    """What was left out, and what processes at once have shown."""
    for key in ("left_out", "at_once"):
        if key in provenance:
            note(f"paceline: {provenance[key]}")
