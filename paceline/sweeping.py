"""Sweeps: a grid of scenarios, simulated in parallel, written as a journal.

The results file gets one line a scenario, in the order of the grid, each as soon as it
and all before it are done. A sweep that was interrupted goes on after the last whole
line. Its bytes depend on the scenarios alone, not on the number of jobs; the time each
took stands in a file of its own beside it (``RESULTS.times.ndjson``).
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simulator.errors import InputError, ResultsError, ScenarioError, SimulationError
from simulator.loading import apply_settings, is_dotted_key, parse_value, scenario_from_table
from simulator.results import Result
from simulator.run import simulate
from simulator.scenario import Scenario

__all__ = ["Axis", "grid", "parse_axis", "sweep"]

Axis = tuple[str, list[Any]]
"""A dotted key and the values that it takes."""

_MOST_SCENARIOS = 1_000_000


def parse_axis(text: str) -> Axis:
    """Read ``key=v1,v2,...``; each value is TOML where it parses as TOML, else text.

    Raises
    ------
    ScenarioError
        There is no key, or no value.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not is_dotted_key(key):
        raise ScenarioError(f"--over {text[:80]!r}: must be key=v1,v2,..., such as strategy.workers=1,2,4,8")
    try:
        values = list(tomllib.loads(f"values = [{raw}]\n")["values"])
    except (ValueError, RecursionError):
        values = [parse_value(part) for part in raw.split(",")]
    if not values or values == [""]:
        raise ScenarioError(f"--over {text[:80]!r}: has no values; write {key}=v1,v2,...")
    return key, values


def grid(
    table: Mapping[str, Any],
    axes: Sequence[Axis],
    settings: Iterable[tuple[str, Any]] = (),
    *,
    source: str = "scenario",
    beside: Path | None = None,
) -> list[Scenario]:
    """Every combination of the axes' values, the last axis fastest, each validated.

    Raises
    ------
    ScenarioError
        A combination breaks a rule; the message says which combination.
    """
    size = 1
    for _, values in axes:
        size *= len(values)
    if size > _MOST_SCENARIOS:
        raise ScenarioError(f"{source}: the grid has {size:,} scenarios; at most {_MOST_SCENARIOS:,} are taken")
    keys = [key for key, _ in axes]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ScenarioError(f"--over {twice[:80]}: is given twice; write all its values into one --over, separated by commas")
    base = apply_settings(table, settings, f"{source}: ")
    scenarios = []
    for combination in itertools.product(*(values for _, values in axes)):
        chosen = [(key, value) for (key, _), value in zip(axes, combination, strict=True)]
        where = source + "".join(f" --over {key}={value}" for key, value in chosen)
        scenarios.append(scenario_from_table(apply_settings(base, chosen, f"{source}: "), where, beside))
    return scenarios


def sweep(
    scenarios: Sequence[Scenario], out: Path, *, jobs: int = 0, force: bool = False, progress: Callable[[int, int], None] | None = None
) -> list[Result]:
    """Simulate scenarios, appending each result to ``out``.

    Parameters
    ----------
    scenarios
        What to simulate, in order.
    out
        The journal; results that it already has, in this order, are kept.
    jobs
        Processes; 0 takes all cores.
    force
        Begin anew if ``out`` holds the results of another sweep.
    progress
        Called with scenarios done and in all.

    Raises
    ------
    ResultsError
        ``out`` holds results of another sweep, or is no results file.
    SimulationError
        A scenario failed, or a worker process was killed; earlier results are kept.
    """
    results = _resume(scenarios, out, force)
    if progress is not None:
        progress(len(results), len(scenarios))
    times = out.with_suffix(".times.ndjson")
    with out.open("a", encoding="utf-8") as journal, times.open("a" if results else "w", encoding="utf-8") as clock:
        for result in _in_parallel(scenarios[len(results) :], jobs):
            clock.write(json.dumps({"scenario_hash": result.scenario_hash, "wall_time_s": result.wall_time_s}) + "\n")
            kept = result.model_copy(update={"wall_time_s": None})
            journal.write(kept.to_json() + "\n")
            journal.flush()
            os.fsync(journal.fileno())
            results.append(kept)
            if progress is not None:
                progress(len(results), len(scenarios))
    return results


def _resume(scenarios: Sequence[Scenario], out: Path, force: bool) -> list[Result]:
    """Results of this very sweep that are already there; cuts off a half-written last line."""
    if not out.exists():
        return []
    if not out.is_file():
        raise InputError(f"--out {str(out)!r}: is no regular file, so no sweep can go on in it; choose another path")
    whole: list[Result] = []
    length = 0
    try:
        with out.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n") and number <= len(scenarios) and _begins(line, scenarios[number - 1]):
                    break
                result = Result.model_validate_json(line)
                if number > len(scenarios) or result.scenario_hash != scenarios[number - 1].hash:
                    raise ResultsError(
                        f"{out}:{number}: holds the results of another sweep; choose another --out, or --force to replace it"
                    )
                whole.append(result)
                length += len(line)
    except (ResultsError, ValidationError) as error:
        if force:
            out.unlink()
            return []
        if isinstance(error, ResultsError):
            raise
        where = f"{out}:{len(whole) + 1}: is no result" if whole else f"{out}: is there already and is no results file"
        raise ResultsError(f"{where} of this version; choose another --out, or --force to replace it") from None
    except OSError as error:
        raise InputError(f"--out {str(out)!r}: cannot be read: {error.strerror}") from None
    if out.stat().st_size != length:
        os.truncate(out, length)
    return whole


def _begins(line: bytes, scenario: Scenario) -> bool:
    """Whether a line without an end is what the result of a scenario begins with."""
    start = f'{{"schema_version":1,"scenario_hash":"{scenario.hash}"'.encode()
    return line.startswith(start) or start.startswith(line)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that are started inside take no notice of Ctrl-C: this one does, and ends them."""
    if threading.current_thread() is not threading.main_thread():  # others may not set signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_parallel(scenarios: Sequence[Scenario], jobs: int) -> Iterable[Result]:
    """Results in the order of the scenarios, each as soon as it and all before it are done."""
    if not scenarios:
        return
    workers = min(jobs or os.cpu_count() or 1, len(scenarios))
    if workers == 1:
        yield from map(simulate, scenarios)
        return
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        with _deaf_to_ctrl_c():
            results = Parallel(n_jobs=workers, return_as="generator", batch_size=1, pre_dispatch="2*n_jobs")(
                delayed(simulate)(scenario) for scenario in scenarios
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"\d+ tasks ")  # joblib's remark where it is stopped half-way
            yield from results
    except TerminatedWorkerError:
        raise SimulationError(
            "a worker process was killed, perhaps for want of memory; finished results are kept: run again with fewer --jobs"
        ) from None
