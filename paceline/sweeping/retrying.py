"""Failures of a journal simulated again, in a new file that takes its place when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.sweeping.journal import Journal
from paceline.sweeping.lines import Line
from paceline.sweeping.running import Runner
from simulator.scenario import Scenario

__all__ = ["clean_up", "retried"]


def _beside(out: Path) -> Path:
    return out.with_name(f".{out.name}.retry")


def clean_up(out: Path) -> None:
    """Remove what a retry left that was killed; the caller has the journal open."""
    Journal.remove(_beside(out))


def retried(journal: Journal, scenarios: Sequence[Scenario], runner: Runner, progress: Callable[[int, int], None]) -> Journal:
    """The journal with every failure simulated anew; until that is done, the old one stands.

    Parameters
    ----------
    journal
        Holds outcomes of the first scenarios; it is closed.
    scenarios
        Those of the sweep.
    runner
        Simulates the ones that failed.
    progress
        Called with failures done and in all.
    """
    out, failed = journal.lines.path, journal.lines.failed
    times = journal.times()
    partial = Journal.open(_beside(out))
    try:
        again = runner.run(scenarios[index] for index in failed)
        done = 0
        progress(done, len(failed))
        for index, scenario_hash in enumerate(journal.lines.hashes):
            if done < len(failed) and failed[done] == index:
                partial.append(next(again))
                done += 1
                progress(done, len(failed))
            else:
                partial.write([Line(journal.lines.raw(index), scenario_hash, times.get(scenario_hash), failed=False)], sync=False)
        partial.take_place_of(out)
    except BaseException:
        partial.close()
        clean_up(out)
        raise
    journal.close()
    return partial
