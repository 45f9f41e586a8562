"""What the calibrating commands share: progress, warnings in boxes, and what is said of a file that was fitted.

The provenance is read by its keys, which the fits in ``calibrate/fit`` write.
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from paceline.cli.ending import keeping
from paceline.cli.options import Given, command_line
from paceline.cli.terminal import note, stages_bar
from simulator.base.errors import CalibrationWarning

if TYPE_CHECKING:
    from pydantic import BaseModel

    from simulator.spec.cluster import Cluster
    from simulator.spec.input_pipeline import InputPipeline

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

    from paceline.cli.terminal import printer

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
