"""Reads a user's table of measured throughputs, and makes the scenario at each of its settings.

:data:`COLUMNS` is the file format of ``paceline validate --measured`` and of ``paceline report --measured``
(``paceline.reporting.measured``).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from calibrate.number_table import check_names, named, number_in, rows_of, separator_of
from calibrate.observations import Figure, Observed, Quantity, check_units, throughput_of
from calibrate.validation.comparison import Compared, drawn_interval, reached_of
from simulator.base.errors import InputError, ReadingWarning
from simulator.base.files import bytes_of, text_of
from simulator.base.text import did_you_mean, format_number, listed
from simulator.base.units import as_thousands, check_thousands
from simulator.base.validation_errors import quoted
from simulator.catalogue.loading import scenario_from_table
from simulator.results.results import Result
from simulator.scenario import Scenario
from simulator.strategies.catalogue import kind_of

COLUMNS = {
    "workers": "worker processes (replicas under MirroredStrategy)",
    "servers": "parameter servers; empty or left out: as in the scenario",
    "throughput": "samples/s of all workers together",
    "steps_per_s": "steps/s of each worker",
    "step_time_s": "seconds of a step",
    "epoch_s": "seconds of an epoch of job.dataset_size samples",
    "staleness": "mean staleness, in updates; empty: not measured",
    "batch": "samples per worker and step, or global if the scenario has global_batch; empty: as in the scenario",
}
"""Every column that a file of points may have; workers, and one that tells a speed, must be there."""

_SPEEDS: tuple[Quantity, ...] = ("throughput", "steps_per_s", "step_time_s", "epoch_s")
_WHOLE = {"workers": (1, 100_000), "servers": (0, 100_000), "batch": (1, 10**9)}
_MOST_BYTES = 4 * 2**20
_MOST_ROWS = 10_000
_EXAMPLE = "workers,servers,throughput"
_NEAR = 30.0
"""Factor by which throughputs of one table may differ from each other, more workers and larger batches among them."""


class Setting(Observed):
    """One setting that was measured, once or several times.

    Throughput is in the unit that the caller knows of, staleness in updates.
    """

    quantity: Quantity = Field(default="throughput", description="quantity by which the file gives its speed")
    throughput: tuple[float, ...] = Field(min_length=1, description="value of each repeat in that quantity")
    staleness: tuple[float, ...] = Field(default=(), description="mean of each repeat with a value")
    line: int = Field(ge=1, description="of the file, where it stands first")

    def as_throughput(self, told: Scenario) -> Setting:
        """The same with its speed as samples/s of all workers together.

        Raises
        ------
        InputError
            It is the time of an epoch, and the scenario does not say how many samples that has.
        """
        rates = [throughput_of(self.quantity, value, self, told) for value in self.throughput]
        return self.model_copy(update={"quantity": "throughput", "throughput": tuple(rates)})


def is_points(path: Path) -> bool:
    """Tell whether the first line of a file names the columns that a table of measured points must have."""
    try:
        with path.open("rb") as file:
            first = file.readline(_MOST_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return False  # whoever reads it says why
    names = {name.strip().lower() for name in re.split("[,;\t]", first)}
    return "workers" in names and not names.isdisjoint(_SPEEDS) and names.issubset(COLUMNS)


def read_points(path: Path) -> tuple[Setting, ...]:
    """Read a table of measured points; rows of the same setting are repeats of it.

    The first line names the columns (:data:`COLUMNS`), in any order. Values are separated
    by commas, semicolons or tabs, whichever the first line has; numbers have a decimal
    point. Empty lines and lines that begin with ``#`` are passed over.

    ``1.900`` may mean 1.9 or 1900. A whole number is refused that is written so; of throughputs
    the others decide: another number of decimals among them, or numbers that lie near one of the two.

    Returns
    -------
    tuple of Setting
        In the order in which they first appear.

    Raises
    ------
    InputError
        The file is missing, empty, too large or no such table; names line, column, value and rule.

    Warns
    -----
    ReadingWarning
        All throughputs may be thousands, and are read as decimals; or workers and throughputs seem to be swapped.
    """
    lines = _lines(path)
    names, separator, rows = _header(path, lines)
    quantity = next(name for name in _SPEEDS if name in names)
    held: dict[tuple[int | None, ...], list[tuple[int, dict[str, float]]]] = {}
    throughputs: dict[int, str] = {}
    for count, (line, cells) in enumerate(rows, start=1):
        where = f"{path}:{line}"
        if count > _MOST_ROWS:
            raise InputError(f"{where}: has more than {_MOST_ROWS:,} rows: give the mean of each run, not every step")
        row = named(where, names, cells, separator)
        values, throughputs[line] = _values(where, row), row[quantity]
        workers, servers, batch = (int(values[name]) if name in values else None for name in _WHOLE)
        held.setdefault((workers, servers, batch), []).append((line, values))
    if not held:
        raise InputError(f"{path}: has column names but no rows: add a line per run, such as 8,2,1234.5")
    _check_thousands(path, quantity, throughputs)
    _ask_of_swapped(path, quantity, [values for repeats in held.values() for _, values in repeats])
    return tuple(
        Setting(
            **dict(zip(_WHOLE, key, strict=True)),
            quantity=quantity,
            throughput=tuple(values[quantity] for _, values in repeats),
            staleness=tuple(values["staleness"] for _, values in repeats if "staleness" in values),
            line=repeats[0][0],
        )
        for key, repeats in held.items()
    )


def _lines(path: Path) -> str:
    text = text_of(bytes_of(path, hint="give a CSV file", most=_MOST_BYTES), path, hint="save it as CSV in UTF-8")
    if not text.strip():
        raise InputError(f"{path}: is empty: the first line must name the columns, such as {_EXAMPLE}")
    return text


def _header(path: Path, text: str) -> tuple[list[str], str, Iterator[tuple[int, list[str]]]]:
    """The names of the columns, what separates them, and the rows below."""
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    separator = separator_of(first)
    rows = rows_of(path, io.StringIO(text, newline=""), separator)
    line, cells = next(rows, (1, []))
    names = [cell.lower() for cell in cells]
    where = f"{path}:{line}"
    check_names(where, names, _EXAMPLE)
    for name in names:
        if name not in COLUMNS:
            nearest = did_you_mean(name, COLUMNS, f"known are {', '.join(COLUMNS)}")
            hint = "did you mean throughput?" if "samples_per_s" in name else nearest
            raise InputError(f"{where}: {quoted(name)} is not a column of measured points; {hint}")
    speeds = [name for name in _SPEEDS if name in names]
    if "workers" not in names or not speeds:
        missing = "workers" if "workers" not in names else "throughput"
        raise InputError(f"{where}: the column {missing} is missing; the first line names the columns, such as {_EXAMPLE}")
    if len(speeds) > 1:
        raise InputError(f"{where}: has {listed(speeds)}, which give the same quantity: keep one")
    return names, separator, rows


def _values(where: str, row: Mapping[str, str]) -> dict[str, float]:
    """The numbers of a row; a column that may be empty and is stays away."""
    values = {}
    for name, cell in row.items():
        if not cell and name != "workers" and name not in _SPEEDS:
            continue
        value = number_in(where, name, cell)
        if name in _WHOLE:
            check_thousands(cell, f"{where}: {name}: {quoted(cell)}")
            least, most = _WHOLE[name]
            if not value.is_integer() or not least <= value <= most:
                raise InputError(f"{where}: {name}: {cell[:30]} must be a whole number from {least} to {most:,}")
        elif name in _SPEEDS and value <= 0:
            raise InputError(f"{where}: {name}: {cell} must be above zero: leave out a failed run")
        elif value < 0:
            raise InputError(f"{where}: {name}: {cell} must not be negative")
        values[name] = value
    return values


def _check_thousands(path: Path, column: str, cells: Mapping[int, str]) -> None:
    """Check that throughputs, by their lines, whose point may separate thousands are decimals: as others are, or by a warning.

    Raises
    ------
    InputError
        Compared with unambiguous numbers they make sense only as thousands, not as decimals.
    """
    doubtful = {line: thousands for line, cell in cells.items() if (thousands := as_thousands(cell))}
    sure = [cell for line, cell in cells.items() if line not in doubtful]
    if not doubtful or any("." in cell for cell in sure):
        return
    (line, thousands), *_ = doubtful.items()
    cell = cells[line]
    if not sure:
        warnings.warn(
            f"{path}:{line}: {column}: {quoted(cell)} means {float(cell):g}, like all values below it: if the point separates "
            f"thousands, write {thousands}",
            ReadingWarning,
            stacklevel=3,
        )
        return
    least, most = min(map(float, sure)) / _NEAR, max(map(float, sure)) * _NEAR
    for line in doubtful:
        if not least <= float(cells[line]) <= most:
            check_thousands(cells[line], f"{path}:{line}: {column}: {quoted(cells[line])}, next to {sure[0]},")


def _ask_of_swapped(path: Path, quantity: str, rows: Sequence[Mapping[str, float]]) -> None:
    """Warn where throughputs are whole numbers, each below the number of workers in its row: the two columns may be swapped."""
    if quantity == "throughput" and all(row[quantity].is_integer() and row[quantity] < row["workers"] for row in rows):
        row = rows[0]
        warnings.warn(
            f"{path}: {row['workers']:,.0f} workers reach a throughput of {row[quantity]:,.0f}, as in all other rows: are the columns "
            "workers and throughput swapped?",
            ReadingWarning,
            stacklevel=3,
        )


Unit = Literal["samples/s", "updates/s"]


def scenarios_at(
    table: Mapping[str, Any], settings: Sequence[Setting], *, source: str, points: Path, beside: Path | None
) -> list[Scenario]:
    """The scenario with workers, servers and batch as at each setting.

    Parameters
    ----------
    table
        The scenario as in its file.
    settings
        As :func:`calibrate.validation.points.read_points` gives them.
    source, points
        Files of the scenario and of the points, for messages.
    beside
        Folder that relative ``use`` paths are also looked up in.

    Raises
    ------
    InputError
        The scenario is not valid as it is, or cannot be at one of the settings; names the line of that one.
    """
    base = base_scenario(table, settings, source=source, beside=beside)
    return [setting.scenario_of(base, f"{points}:{setting.line}") for setting in settings]


def base_scenario(table: Mapping[str, Any], settings: Sequence[Setting], *, source: str, beside: Path | None) -> Scenario:
    """The scenario as in its file; with the first setting's workers where it leaves them out."""
    strategy = table.get("strategy")
    key = kind_of(strategy).count_key
    if isinstance(strategy, Mapping) and key and key not in strategy:
        table = {**table, "strategy": {**strategy, key: settings[0].workers}}
    return scenario_from_table(table, source, beside)


def check_figures(points: Path, settings: Sequence[Setting], results: Sequence[Result]) -> tuple[str, ...]:
    """Ask what throughputs in samples/s may mean in place of what they say, compared with their predictions.

    Raises
    ------
    InputError
        They are in another unit, as far as predictions can tell.
    """
    figures = []
    for setting, result in zip(settings, results, strict=True):
        samples = result.scenario.batch * result.scenario.replicas
        said = f"{points}:{setting.line}: throughput {format_number(setting.throughput[0])}"
        predicted_s = samples / result.throughput_samples_per_s.mean
        figures.append(Figure(said, "throughput", samples / setting.throughput[0], predicted_s, samples, setting.workers))
    return tuple(check_units(figures, "a column steps_per_s", "a column epoch_s"))


def compared(
    settings: Sequence[Setting],
    results: Sequence[Result],
    unit: Unit = "samples/s",
    *,
    group: str = "",
    fitted: bool = False,
) -> list[Compared]:
    """Compare what was measured at each setting with what was predicted there.

    Parameters
    ----------
    settings, results
        Of the same length, in the same order.
    unit
        Of the throughputs measured.
    group, fitted
        As :class:`~calibrate.validation.comparison.Compared` has them; no group: how each trains.
    """
    return [
        Compared(
            name=setting.name,
            group=group or result.scenario.strategy.way,
            fitted=fitted,
            unit=unit,
            measured=setting.throughput,
            predicted=result.throughput_samples_per_s if unit == "samples/s" else result.updates_per_s,
            staleness_measured=setting.staleness,
            staleness_predicted=result.staleness.mean if setting.staleness else None,
            settings=_settings(result.scenario),
            reached=reached_of(
                result.discrepancy,
                drawn_interval(result, unit),
                source=result.scenario.cluster.name,
                series=result.scenario.workload.name,
            ),
        )
        for setting, result in zip(settings, results, strict=True)
    ]


def _settings(scenario: Scenario) -> dict[str, float | str]:
    settings: dict[str, float | str] = {"workers": float(scenario.workers)}
    if scenario.servers:
        settings["servers"] = float(scenario.servers)
    return {**settings, "batch": float(scenario.batch)}
