"""The stages of a pipeline and what devices exchange, as rows: for a terminal, a page and CSV files alike."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.base.table import Cell, Column, Table
from simulator.results.results import Result

__all__ = ["EXCHANGE_COLUMNS", "STAGE_COLUMNS", "exchange_rows", "exchanges_table", "stage_rows", "stages_table"]

STAGE_COLUMNS = (
    Column("stage", "any", "Stage", "its number, from 0 on", left=True),
    Column("layers", "text", "Layers", "the first and the last of its layers, of each chunk"),
    Column("devices", "count", "Devices", "of all copies together"),
    Column("parameter_bytes", "bytes", "Parameters", "bytes of its layers' variables in one copy of the model"),
    Column("busy", "share", "Busy", "share of the time in which its devices compute"),
    Column("communication", "share", "Communication", "share in which they wait for messages and collectives alone"),
    Column("bubble", "share", "Bubble", "share in which they wait for other stages or copies"),
    Column("input", "share", "Input", "share in which they wait for their batch"),
    Column("staleness", "count", "Staleness", "updates by which its gradients are late"),
)
EXCHANGE_COLUMNS = (
    Column("among", "text", "Among", "who takes part (docs/ways-of-training.md)"),
    Column("does", "text", "What", "the collective, or what stages hand on"),
    Column("devices", "count", "Devices", "that take part in one"),
    Column("links", "text", "Links", "which links it has to cross"),
    Column("stage", "any", "Stage", "of the stages the one for which it takes longest", left=True),
    Column("times", "count", "Times", "how often a device takes part in a step"),
    Column("size_bytes", "bytes", "Bytes", "of the buffers of a device's step together"),
    Column("seconds", "seconds", "Takes", "one after the other, had they the links for themselves and those that do the same"),
)


def stage_rows(result: Result) -> Iterator[tuple[Cell, ...]]:
    """A row for each stage, in the order of :data:`STAGE_COLUMNS`."""
    for number, its in enumerate(result.stages):
        yield (number, *(getattr(its, column.name) for column in STAGE_COLUMNS[1:]))


def exchange_rows(result: Result) -> Iterator[tuple[Cell, ...]]:
    """A row for each exchange, in the order of :data:`EXCHANGE_COLUMNS`."""
    for its in result.exchanges:
        yield tuple(getattr(its, column.name) for column in EXCHANGE_COLUMNS)


def stages_table(result: Result) -> Table:
    """The stages; staleness and input only where there is any."""
    always = [column.name for column in STAGE_COLUMNS if column.name not in ("input", "staleness")]
    some = [name for name in ("input", "staleness") if any(getattr(its, name) for its in result.stages)]
    return Table("Stages", STAGE_COLUMNS, tuple(stage_rows(result)), "stages").only(*always, *some)


def exchanges_table(result: Result) -> Table:
    """What devices exchange in a step; without the number of the stage where there is only one."""
    names = [column.name for column in EXCHANGE_COLUMNS if column.name != "stage" or result.stages]
    return Table("What devices exchange in a step", EXCHANGE_COLUMNS, tuple(exchange_rows(result)), "exchanges").only(*names)
