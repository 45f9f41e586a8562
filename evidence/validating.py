"""Published tables predicted and compared, as functions; :mod:`evidence.__main__` runs them from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tomlkit

from calibrate.validation.validation import Validation, thresholds_of
from evidence.published import hybrid_validation
from evidence.published import validation as published
from paceline.arguments import File, Folder, MustBe, Stages, Text, Thresholds, checked, path_of
from paceline.reporting.validation import ValidationFiles
from paceline.sweeping.backends import local_workers
from simulator.base.files import EDITED, Output
from simulator.catalogue.loading import scenario_from_table
from simulator.scenario import Scenario


@checked
def validate_published(
    regimes: Annotated[Sequence[str], MustBe("a list of regimes, such as ['all-reduce', 'NCCL']")] = (),
    *,
    only: Annotated[Sequence[str], MustBe("a list of tables or series, such as ['horovod_2017']")] = (),
    thresholds: Thresholds = None,
    out: File | None = None,
    rows: File | None = None,
    tables: Folder | None = None,
    force: bool = False,
    command: Text = "",
    progress: Stages = None,
) -> Validation:
    """Predict throughput tables that others have published, from their smallest rows and facts about hardware.

    Parameters
    ----------
    regimes
        Some of ``"sync PS"``, ``"async PS"``, ``"all-reduce"``, ``"staleness"``, ``"NCCL"`` and
        ``"moved"`` (trainings moved to another device); none given: all.
    only
        Some tables or series of ``models/published``; none given: all.
    thresholds, out, rows, tables, force, command, progress
        As for :func:`validate`.

    Returns
    -------
    Validation
        A row for each published setting, scores of each regime, and what missed its threshold.

    Raises
    ------
    InputError
        There is no such regime, table or series, or a file cannot be written.

    Examples
    --------
    >>> found = validate_published(["moved"])
    >>> found.title, len(found.to_frame()) > 100
    ('Published trainings moved to another device', True)
    """
    limits = thresholds_of(thresholds or {})
    files = ValidationFiles({"out": path_of(out), "rows": path_of(rows)}, path_of(tables), force=force)
    files.check(published.outlines_of(regimes, only))
    with local_workers(0) as workers:
        found = published.validate_published(tuple(regimes) or None, progress, spread=workers.map, only=tuple(only))
    validation = found.validation.made_by(command or "evidence.validate_published").judged(limits)
    files.write(validation)
    return validation


@checked
def published_scenario(row: Text, *, out_scenario: File | None = None, force: bool = False) -> Scenario:
    """The scenario by which :func:`validate_published` predicts one row of a published table.

    It has the workload with which the smallest row of its series comes out as measured, and the constants and the discrepancy
    that come out without its table, so that it predicts the same number.

    Parameters
    ----------
    row
        Its name in the validation: ``"SERIES: 8 on 2"``, 8 devices on 2 nodes.
    out_scenario
        A scenario file to write; comments at its top say which row it is, what was measured, and where that was published.
    force
        Replace that file where it is there already.

    Returns
    -------
    Scenario
        What is simulated.

    Raises
    ------
    InputError
        No row that a scenario predicts has this name, or the file cannot be written.

    Examples
    --------
    >>> published_scenario("fsdp: 8 on 9")
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `row`: no published row that a scenario predicts is named 'fsdp: 8 on 9'; ...
    """
    target = None if out_scenario is None else Output(Path(out_scenario), EDITED, force=force, argument="out_scenario")
    row_found = published.row_of(row)
    found = scenario_from_table(row_found.table, row)
    if target is not None:
        about = "".join(f"# {line}\n" for line in row_found.about)
        target.write(f"{about}\n{tomlkit.dumps(row_found.table)}")
    return found


@checked
def validate_hybrids(
    only: Annotated[Sequence[str], MustBe("a list of tables or series, such as ['torchgpipe']")] = (),
    *,
    keep: Folder | None = None,
    thresholds: Thresholds = None,
    out: File | None = None,
    rows: File | None = None,
    tables: Folder | None = None,
    force: bool = False,
    command: Text = "",
    progress: Stages = None,
) -> Validation:
    """Predict published trainings that cut a model over devices: pipelines, split tensors, sharded state.

    Parameters
    ----------
    only
        Some tables or series of ``models/published/hybrids.toml``; none given: all.
    keep
        A folder in which predicted rows are kept, in the file ``hybrids.ndjson``, so that the same call goes on where it was stopped.
    thresholds, out, rows, tables, force, command, progress
        As for :func:`validate`.

    Returns
    -------
    Validation
        A row for each published setting and way of predicting it, scores of each, and what missed its threshold.

    Raises
    ------
    InputError
        There is no such table or series, or a file cannot be written.

    Examples
    --------
    >>> validate_hybrids(["torchgpipes"])
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `only`: there is no published table or series 'torchgpipes'; did you mean torchgpipe?
    """
    limits = thresholds_of(thresholds or {})
    files = ValidationFiles({"out": path_of(out), "rows": path_of(rows)}, path_of(tables), force=force)
    files.check((hybrid_validation.outline_of(only),))
    with local_workers(0) as workers:
        found = hybrid_validation.validate_hybrids(tuple(only) or None, progress, spread=workers.map, keep=path_of(keep), force=force)
    validation = found.made_by(command or "evidence.validate_hybrids").judged(limits)
    files.write(validation)
    return validation
