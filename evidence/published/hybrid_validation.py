"""All published trainings that split a model, compared with their predictions, and their summary."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from calibrate.probing import Progress
from calibrate.validation.comparison import Compared
from calibrate.validation.validation import Outline, Score, Validation, largest_errors, scores_of
from evidence.published.hybrid_prediction import (
    DIMENSIONS,
    FITTED,
    SMALLEST,
    WAYS,
    Way,
    fitted_constants,
    group_of,
    hybrid_rows,
    is_composed,
    ways_of,
)
from evidence.published.hybrids import HybridRow, HybridTables, load_hybrids
from evidence.published.tables import Excluded
from evidence.published.validation import Spread
from simulator.base.errors import InputError, SimulationError
from simulator.base.files import Output, OutputKind, checksum_holds, with_checksum
from simulator.base.table import Column, Table
from simulator.base.text import did_you_mean
from simulator.spec.constants import Known

_KEY = "hybrids"
_WHAT: Mapping[Way, str] = {
    DIMENSIONS: "throughput from dimensions",
    FITTED: "throughput with fitted constants",
    SMALLEST: "throughput from the smallest row",
}
_ABOUT = (
    "Every row is predicted by simulating a scenario of kind hybrid: the model by its dimensions, a machine of the catalogue, degrees, "
    "micro-batches and what is computed again as published. From dimensions: with the constants that users get, to which no row of these "
    "tables was fitted; but fused_attention_share lies between what llm-foundry's longer sequences show and what kernels reach alone. "
    "Constants fitted: with decoder_matrix_share, fused_elementwise_share and kernel_start_s fitted to two thirds of the layouts of "
    "one node in vTrain's table; all other tables, and its rows of several nodes, took no part. From its smallest row: compute is scaled "
    "so that the row of the same training with the fewest devices comes out, which is not scored.",
    "vTrain's rows of one node are no independent measurements: their step times are linear in the number of micro-batches to nine digits, "
    "and replicas of data add the same constant to each, so that the file must be composed of measured parts. They test a composition, and "
    "have no part in what is said of all. Its rows of several nodes are not linear, and test a prediction.",
    "That a pass takes at least as long as its host needs to start it was seen on vTrain's rows before it was built, and that kinds of "
    "kernel need shares of their own on those of llm-foundry and Megatron-LM. The formulas of layers, and all other constants that users "
    "get, are from other sources: single kernels, trainings on single devices, what others measured of overlap.",
    "Simpler rules beside them: linear, every device does the same share of its peak as in the median of the fitted rows, or of the "
    "smallest row; alpha-beta, that with the pipeline's bubble and all messages at nominal rates, nothing overlapped; roofline, every "
    "device computes at its peak.",
)


def validate_hybrids(
    only: Sequence[str] | None = None,
    progress: Progress | None = None,
    *,
    spread: Spread = map,
    keep: Path | None = None,
    force: bool = False,
) -> Validation:
    """Predict published trainings that cut a model, and compare.

    Parameters
    ----------
    only
        Some of the tables, or series; left out: all.
    progress
        Called with how many rows are done, of how many, and the next one's series.
    spread
        Predicts rows, one after the other if left out.
    keep
        A folder: a row that was predicted is kept there, and not predicted again.
    force
        Start again if the folder's file does not have such rows.

    Raises
    ------
    InputError
        There is no such table or series, or the file of ``keep`` is something else.
    SimulationError
        A row cannot be kept.
    ScenarioError
        A file of the tables is missing or broken.
    """
    tables = load_hybrids()
    wanted = _wanted(tables, only)
    constants = fitted_constants(tables)
    kept = _Kept(keep, force=force)
    missing = [row for row in wanted if row.name not in kept]
    done = spread(partial(_predicted, constants), missing)
    for number, (row, found) in enumerate(zip(missing, done, strict=True), start=1):
        kept.add(row, found)
        if progress is not None:
            progress(number, len(missing), row.series)
    return validation_of([each for row in wanted for each in kept.rows[row.name]], tables.excluded)


def _wanted(tables: HybridTables, only: Sequence[str] | None) -> list[HybridRow]:
    names = [*tables.tables, *tables.series]
    for name in only or ():
        if name not in names:
            hint = did_you_mean(name, names, f"choose from {', '.join(tables.tables)}, or a series")
            raise InputError(f"`only`: there is no published table or series {str(name)[:60]!r}; {hint}")
    return [row for row in tables.rows if not only or {row.series, tables.of(row).table} & set(only)]


def _predicted(constants: Mapping[str, Known], row: HybridRow) -> list[Compared]:
    return hybrid_rows(load_hybrids(), row, constants)


class _Kept:
    """Rows by name, one after the other also in a file where there is a folder, which other processes may append to as well."""

    def __init__(self, folder: Path | None, *, force: bool) -> None:
        self.rows: dict[str, list[Compared]] = {}
        self._output: Output | None = None
        self._anew = False
        if folder is not None:
            path = folder / "hybrids.ndjson"
            self._output = Output(path, _KEPT, force=force, argument="keep")
            if path.is_file():
                self._anew = not _KEPT.holds(path)
                if not self._anew:
                    self._read(path)

    def _read(self, path: Path) -> None:
        """Take what is whole, and of this version; the rest is predicted again."""
        for line in path.read_bytes().splitlines():
            if checksum_holds(line):
                found = json.loads(line)
                with contextlib.suppress(ValidationError):
                    self.rows[found["name"]] = [Compared.model_validate(each) for each in found["rows"]]

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def add(self, row: HybridRow, found: list[Compared]) -> None:
        """Keep a row.

        Raises
        ------
        SimulationError
            It cannot be written, as on a full disk.
        """
        self.rows[row.name] = found
        if self._output is None:
            return
        if self._anew:
            self._output.write(b"")
            self._anew = False
        path = self._output.path
        text = json.dumps({"name": row.name, "rows": [each.model_dump(mode="json") for each in found]})
        line = f"{with_checksum(text)}\n".encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "a+b", buffering=0) as file:  # whole lines, each behind all that is there, whoever wrote it
                if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                    line = b"\n" + line
                while line:
                    line = line[file.write(line) :]
        except OSError as error:
            raise SimulationError(f"{path}: cannot be written: {error.strerror}; predicted rows are kept: run again when it can") from None


_BEGINS, _BEGAN, _WENT_ON = b'{"name": ', b'["', b'", [{"name": '
"""Of a line, and of one of earlier versions, which had no checksum."""
_KEPT = OutputKind("holds no predicted rows", lambda path: all(map(_is_line, path.read_bytes().splitlines())))


def _is_line(text: bytes) -> bool:
    """Whether it is a line of predicted rows, or the beginning of one."""
    return text.startswith(_BEGINS) or _BEGINS.startswith(text) or (text.startswith(_BEGAN) and _WENT_ON in text)


def validation_of(rows: Sequence[Compared], excluded: Sequence[Excluded]) -> Validation:
    """Summary of rows: each source and method separately, and each method in total."""
    by_way = {way: [row for row in rows if row.settings["way"] == way] for way in WAYS}
    scores: list[Score] = []
    apart = []
    for way, its in by_way.items():
        scores += scores_of(row for row in its if is_composed(row))
        found = scores_of((row for row in its if not is_composed(row)), f"all, {way}")
        scores += found
        if found:
            apart.append((found[-1].group, _WHAT[way]))
    return Validation(
        key=_KEY,
        title="Published trainings that cut a model",
        rows=tuple(rows),
        scores=tuple(scores),
        apart=tuple(apart),
        about=_ABOUT,
        tables=(
            *(
                largest_errors((row for row in its if not is_composed(row)), way, most=4, of_a_series=2)
                for way, its in by_way.items()
                if any(not row.fitted for row in its)
            ),
            largest_errors((row for row in rows if is_composed(row)), "vTrain, one node", most=3, of_a_series=1),
            _not_fitting(rows),
            _excluded(excluded),
        ),
        family=lambda row: _family(row.group, str(row.settings["table"])),
        details=(_by_layout(rows),),
    )


def _family(group: str, table: str) -> str:
    """The table that a row is from; vTrain's has too many rows for one file."""
    return group if group.startswith("vTrain") else table


def outline_of(only: Sequence[str] | None = None) -> Outline:
    """What tables there may be of some of the published ones, or series; errors as of :func:`validate_hybrids`."""
    tables = load_hybrids()
    families = (_family(group_of(tables, row, way), tables.of(row).table) for row in _wanted(tables, only) for way in ways_of(tables, row))
    return Outline(_KEY, tuple(dict.fromkeys(families)), (_by_layout(()),))


def _by_layout(rows: Iterable[Compared]) -> Table:
    """Errors of each table by devices and degrees."""
    found: dict[tuple[str, str, int, int, int], list[Compared]] = {}
    for row in rows:
        if not row.fitted:
            its = row.settings
            key = str(its["way"]), str(its["table"]), int(its["workers"]), int(its["tensor"]), int(its["pipeline"])
            found.setdefault(key, []).append(row)
    columns = (
        Column("way", "text"),
        Column("table", "text"),
        Column("devices", "count"),
        Column("tensor", "count"),
        Column("pipeline", "count"),
        Column("settings", "count"),
        Column("median_error", "error", "median error"),
        Column("worst_error", "error", "worst"),
    )
    cells = tuple(
        (*key, len(its), statistics.median(row.error for row in its), max((row.error for row in its), key=abs))
        for key, its in sorted(found.items(), key=lambda item: (WAYS.index(item[0][0]), item[0][1:]))
    )
    return Table("By devices and degrees", columns, cells, "layouts")


def _not_fitting(rows: Iterable[Compared]) -> Table:
    """Of each series how many settings ran though Paceline would refuse them for want of memory."""
    found: dict[str, dict[str, bool]] = {}
    for row in rows:
        found.setdefault(str(row.settings["series"]), {})[row.name] = row.settings["fits"] == "no"
    columns = Column("series", "text"), Column("settings", "count"), Column("refused", "count", "thought not to fit")
    cells = tuple((series, len(its), sum(its.values())) for series, its in found.items() if any(its.values()))
    return Table("What ran though it is thought not to fit into memory", columns, cells, "memory")


def _excluded(left: Sequence[Excluded]) -> Table:
    columns = Column("table", "text"), Column("series", "text"), Column("rows", "count"), Column("reason", "text")
    return Table("What is not predicted", columns, tuple((each.table, each.series, each.rows, each.reason) for each in left), "excluded")
