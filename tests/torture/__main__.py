"""Run the torture: ``python -m torture``, or ``make torture``."""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from csv import writer
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import torture.damaging
import torture.killing
import torture.misreading
import torture.writing  # noqa: F401
from torture.attacks import Attack, Ground, Trial
from torture.endings import Finding, left_in_shared_memory

_ATTACKS = {attack.name: attack for attack in Attack.every()}
_MOST_SHOWN = 40


def main(
    seconds: Annotated[float, typer.Option(help="How long it goes on.")] = 3600.0,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 1,
    jobs: Annotated[int, typer.Option(help="Trials at the same time; 0: one per core.")] = 0,
    only: Annotated[list[str] | None, typer.Option(help=f"Only these attacks: {', '.join(_ATTACKS)}.")] = None,
    trials: Annotated[int | None, typer.Option(help="Stop after so many trials.")] = None,
    trial: Annotated[str | None, typer.Option(help="Do one trial again, such as mutants:17, and keep its folder.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the table here, as evidence/tables/torture.csv.")] = None,
) -> None:
    """Try to make Paceline lose something, leave something, end in a traceback or misread without a word.

    Exits with 1 if anything was found; each trial that found something keeps its folder.
    """
    ground = Ground(Path(tempfile.mkdtemp(prefix="torture-")), seed)
    _warm()
    ground.prepare()
    wanted = [_ATTACKS[name] for name in only or _ATTACKS]
    for attack in wanted:
        attack.prepare(ground)
    if trial is not None:
        name, _, number = trial.partition(":")
        _ATTACKS[name].prepare(ground)
        done = [_ATTACKS[name].try_one(ground, int(number), keep=True)]
        print(f"kept in {done[0].folder.parent}")
    else:
        shared = left_in_shared_memory(within_s=0.0)
        done = list(_torture(ground, wanted, seconds, jobs or os.cpu_count() or 1, trials))
        if left := left_in_shared_memory(but=shared):
            done[-1].found.append(Finding("leftover", "all trials together", f"in /dev/shm: {', '.join(sorted(left))}"))
    found = [one for each in done for one in each.found]
    for one in found[:_MOST_SHOWN]:
        print(f"\n{one.what}: {one.where}\n  {one.said}")
    table = _table(done)
    Console(width=150).print(table)
    if csv is not None:
        csv.write_text(_as_csv(table))
    if found:
        print(f"{len(found)} findings; folders of their trials are in {ground.folder}")
    elif trial is None:
        shutil.rmtree(ground.folder)
    sys.exit(bool(found))


def _warm() -> None:
    """Import and compile what commands need, so that those that are forked from here need not."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder, "s.toml")
        from support.command_line import SCENARIO

        import paceline.api  # noqa: F401
        from simulator import load_scenario, simulate

        scenario.write_text(SCENARIO)
        simulate(load_scenario(scenario))
    gc.freeze()  # a look at what is imported would copy its pages


def _order(attacks: list[Attack]) -> Iterator[tuple[str, int]]:
    """Which trial comes after which, for ever: attacks in turn, each as often as its share says."""
    count: Counter[str] = Counter()
    for turn in itertools.count(1):
        for attack in attacks:
            while count[attack.name] * 100 < turn * attack.share:
                yield attack.name, count[attack.name]
                count[attack.name] += 1


def _try(name: str, ground: Ground, number: int) -> Trial:
    return _ATTACKS[name].try_one(ground, number)


def _torture(ground: Ground, attacks: list[Attack], seconds: float, jobs: int, most: int | None) -> Iterator[Trial]:
    """All trials, as they end."""
    until_s = time.monotonic() + seconds
    ahead = itertools.islice(_order(attacks), most)
    noted_s = time.monotonic()
    done = Counter[str]()
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        running: set[Future[Trial]] = set()
        while True:
            while time.monotonic() < until_s and len(running) < 2 * jobs and (following := next(ahead, None)) is not None:
                running.add(pool.submit(_try, following[0], ground, following[1]))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                trial = one.result()
                done["trials"] += 1
                done["findings"] += len(trial.found)
                yield trial
                for finding in trial.found:
                    print(json.dumps([finding.what, finding.where, finding.said[:1500]]), file=sys.stderr, flush=True)
            if time.monotonic() > noted_s + 30:
                noted_s = time.monotonic()
                print(
                    f"{done['trials']:,} trials, {done['findings']} findings, {max(until_s - noted_s, 0):.0f} s to go",
                    file=sys.stderr,
                    flush=True,
                )


def _table(done: list[Trial]) -> Table:
    """What was tried how often, and what was found."""
    table = Table()
    for title in ("attack", "on", "trials", "commands", "found"):
        table.add_column(title, justify="right" if title in ("trials", "commands") else "left")
    sorts: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in done:
        sorts[trial.name.partition(":")[0], trial.sort].append(trial)
    for (name, sort), its in sorted(sorts.items()):
        what = Counter(one.what for each in its for one in each.found)
        found = ", ".join(f"{count} {each}" for each, count in sorted(what.items())) or "nothing"
        table.add_row(name, sort, f"{len(its):,}", f"{sum(one.commands for one in its):,}", found)
    table.add_section()
    table.add_row("all", "", f"{len(done):,}", f"{sum(one.commands for one in done):,}", f"{sum(len(one.found) for one in done)}")
    return table


def _as_csv(table: Table) -> str:
    cells = zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True)
    text = StringIO()
    writer(text, lineterminator="\n").writerows([[column.header for column in table.columns], *cells])
    return text.getvalue()


if __name__ == "__main__":
    typer.run(main)
