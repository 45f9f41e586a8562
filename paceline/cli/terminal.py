"""Terminal input and output: remarks, questions and progress on stderr; text, tables and JSON on stdout.

``note``, ``say``, ``display`` and ``printer`` escape unprintable characters, so that a name in a user's file cannot control the terminal;
``show_json`` writes JSON unchanged. app.py prints errors, and many commands write JSON with ``typer.echo``. Only this module and app.py may
``print`` (T201 in pyproject.toml). ``rich`` is imported inside functions. Progress bars yield the library's ``progress``, so their
arguments are fixed: done and total, and for ``stages_bar`` the stage. ``evidence/__main__.py`` uses this module too, and
tests/cli/test_sweep.py sets ``_EVERY_S``. The functions at the end are shared by calibrating commands; they read keys of the provenance
that ``calibrate/fit`` writes.
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
    """Print a remark on stderr."""
    print(printable(message), file=sys.stderr)


def remark(message: str) -> None:
    """Print a remark of the library, with arguments written as options."""
    from paceline.cli.options import in_options

    note(in_options(message))


def say(text: str = "", *, end: str = "\n") -> None:
    """Print text on stdout, with unprintable characters escaped."""
    print(printable(text), end=end)


@cache
def _console_class() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Printable(Console):
        """A console that escapes unprintable characters, so that a user's names cannot control it."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return Printable


def printer(**options: Any) -> Console:
    """Return a rich console for the terminal, with its ``options``; every table and text is shown on one."""
    return _console_class()(**options)


class Styled(NamedTuple):
    """A text in a rich style, indented by some characters."""

    text: str
    style: str = ""
    indent: int = 0


Part: TypeAlias = "str | Styled | Table | RenderableType"
"""A block of output: a text, a table, or anything that rich shows."""


def display(*parts: Part) -> None:
    """Print texts and tables on stdout; rich markup in texts has no effect."""
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
    """Print an answer's headline, table and labelled lines, then ``more``, and a ``footer`` that points to the rest."""
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
    heading = "", answer.heading, answer.range_heading, ""
    for row in [heading, *rows]:
        grid.add_row(*(Text(printable(row[place]), style="dim" if row is heading else "") for place in columns))
    return grid


def labelled(lines: Iterable[tuple[str, str]]) -> RenderableType:
    """Return labels and texts in two columns; *Watch out* is in colour."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for label, text in lines:
        grid.add_row(label, Text(text), style="yellow" if label in ("Watch out", "warning") else None)
    return grid


def show_json(data: Any) -> None:
    """Print plain data as JSON on stdout, with no escapes beyond JSON's."""
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def asking(where: object, *, yes: bool) -> Agree:
    """Return the function that the library calls before lengthy work: it asks at the terminal, or with ``yes`` continues at once.

    Parameters
    ----------
    where
        Subject of the work, such as the scenario's file.
    yes
        Whether ``--yes`` is given.

    Raises
    ------
    InputError
        By the returned function: the work is long, stdin is not a terminal, and ``yes`` is not set.
    Exit
        By the returned function: the answer was no.
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
        elif not typer.confirm(f"paceline: {where}: {work.what}. Continue?", err=True):
            raise typer.Exit(InputError.exit_code)

    return agree


@contextmanager
def progress_bar(title: str, *, soon: bool = False) -> Iterator[Advance]:
    """Show progress on stderr with the time left; call the yielded function with work done and total work.

    On a terminal it is a bar, elsewhere an occasional line, with ``soon`` the first after a second. Work done before the first call
    does not count in the time left.
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
    """Show progress of work in several stages: a bar for each, titled by what it counts; ``soon`` as in :func:`progress_bar`."""
    bars: dict[str, Advance] = {}
    with ExitStack() as shown:

        def advance(done: int, total: int, what: str) -> None:
            if what not in bars:
                shown.close()
                bars[what] = shown.enter_context(progress_bar(what, soon=soon))
            bars[what](done, total)

        yield advance


def _progress_lines(title: str, first_after_s: float) -> Advance:
    """Show progress as lines, at most one each half minute, the first after some seconds."""
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
    """Return a number of finished items; the last may be in part."""
    return f"{done:,}" if done == int(done) else f"{done:,.2f}"


FittedT = TypeVar("FittedT", "InputPipeline", "Cluster")


@contextmanager
def measuring() -> Iterator[Callable[[int, int, str], None]]:
    """Show progress of measurements and, if they are stopped, what is kept; show warnings in boxes.

    Raises
    ------
    StoppedError
        The measurements were stopped.
    """
    with warning_loudly(), stages_bar() as progress, keeping():
        yield progress


def run_measured(calibrate: Callable[..., FittedT], given: Given, folder: str) -> tuple[FittedT, Path, Path]:
    """Call a function of the library that fits measurements; return the fit, its file in ``folder``, and the file of measurements."""
    path = given.get("out") or Path("models") / folder / f"{given['name']}.toml"
    with measuring() as progress:
        fitted = calibrate(**{**given, "out": path}, command=command_line(), progress=progress)
    earlier = given.get("from_measurements") or given.get("from_table")
    return fitted, path, earlier or given["measurements"] / fitted.provenance["measurements"]


@contextmanager
def warning_loudly() -> Iterator[None]:
    """Wrap a calibration: show warnings about unreliable measurements at the end, in boxes on stderr."""
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
    """Print a fit as JSON on stdout, with its file, the file of measurements, and ``more`` fields."""
    data = fitted.model_dump(mode="json", exclude={"uncertainty"}, exclude_none=exclude_none)
    typer.echo(json.dumps({**data, "file": str(path), "measurements": str(raw), **more}, indent=2))


def note_of_file(path: Path, section: str, *, beside: str, init: bool = True, scenario: str = "ring") -> None:
    """Print the written file and the next command.

    Parameters
    ----------
    path
        The file of the fit.
    section
        Section of a scenario that names it.
    beside
        Where the measurements are, in words.
    init
        Whether ``paceline init`` accepts it too.
    scenario
        Scenario of the catalogue to try it with.
    """
    note(f"wrote {path}; {beside}")
    use = shlex.quote(str(path.stem if path.parent == Path("models") / f"{section}s" else path))
    mine = f", or write your own scenario with it: paceline init --{section} {use}" if init else ""
    note(f"next: paceline simulate {scenario} --set {section}.use={use}{mine}")


def note_of_measurements(provenance: Mapping[str, str]) -> None:
    """Print what was left out, and the findings of concurrent processes."""
    for key in ("left_out", "at_once"):
        if key in provenance:
            note(f"paceline: {provenance[key]}")
