"""A line of a results file: its contents, fast reading, and errors.

A line of a sweep is recognised by its beginning (``_BEGINNING`` and the patterns below it): the order of the first fields of an outcome
(:mod:`simulator.results.results`) and of a scenario. Change these patterns with that order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from pydantic import ValidationError
from pydantic_core import from_json

from paceline.sentences import doubled_in_words
from simulator.base.errors import ResultsError
from simulator.base.files import CHANGED, KEY, checksum_holds, mistaken, with_checksum, without_checksum
from simulator.base.table import frame_of, html_of
from simulator.base.text import Short, counted, no_such_file, shortly_listed
from simulator.results.results import Failure, Result
from simulator.scenario import hash_of
from simulator.spec.cluster import Cluster
from simulator.spec.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from paceline.sweeping.journal import Written

Outcome = Result | Failure

_VERSION = 1
_BEGINNING = b'{"schema_version":1,"scenario_hash":"'
_HASH = re.compile(re.escape(_BEGINNING) + rb'([0-9a-f]{16})","scenario":')
_WORKLOAD, _CLUSTER, _STRATEGY = b'{"schema_version":1,"workload":', b',"cluster":', b',"strategy":{'
_PLACE = re.compile(rb'\s*,\s*"place"\s*:\s*\d+\s*\}\s*$')
_TELLING = tuple(f'"{key}"'.encode() for key in ("scenario_hash", "scenario", KEY))
"""Keys from both ends of a line: two of them are in no other file of Paceline's, and survive what damages one end."""
_RENAMED = re.compile(rb'"[^"]*":"[0-9a-f]{16}"\}\s*$')
"""End of a line whose checksum follows a damaged name."""
_OTHER_VERSION = ("missing", "extra_forbidden")
_MOST_SHOWN = 60


class DamagedError(ResultsError):
    """The line was written by a sweep, and has changed since."""


class UnclearError(DamagedError):
    """The line's origin is unclear: damaged in a results file, something else in any other file (:func:`is_damage`)."""


class CutOffError(UnclearError):
    """The line is not JSON, and has no line end."""


class Line(NamedTuple):
    """A line, with what is known without building its outcome."""

    text: bytes
    """Text of the line, including its end."""
    scenario_hash: str
    failed: bool
    place: int | None = None
    """Number, from 0, of its scenario in the sweep; lines of a finished file have none."""


def line_of(outcome: Outcome) -> Line:
    """Return the line of an outcome, without a place, so that it depends only on the scenario."""
    return Line(outcome.to_json().encode() + b"\n", outcome.scenario_hash, isinstance(outcome, Failure))


def with_place(text: bytes, place: int | None) -> bytes:
    """Return a line with another place, or with none; it has a checksum only if it had one."""
    bare = _PLACE.sub(b"}", without_checksum(text)).rstrip()
    placed = bare if place is None else bare.removesuffix(b"}") + b',"place":%d}' % place
    return (placed if checksum_holds(text) is None else with_checksum(placed.decode()).encode()) + b"\n"


def line_in(text: bytes) -> Line | None:
    """Return the line of a text; None if it is not the line of a sweep.

    Raises
    ------
    DamagedError
        The line was changed: its checksum or its scenario's hash differs, or it has no checksum and is not an outcome of its scenario; or
        it is not JSON (:class:`UnclearError`).
    ResultsError
        The line has no checksum, and is of another version or has figures that no simulation gives.
    """
    holds, beginning = checksum_holds(text), _HASH.match(text)
    if holds is False or (holds is None and beginning):
        checked_outcome_of(text)
    try:
        data = from_json(text, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        raise _no_json(text, error) from None
    if beginning is None:
        return None
    _check_hash(text, data)
    return Line(text, beginning[1].decode(), "failed" in data, _place_taken_from(data))


def _check_hash(text: bytes, data: Any) -> None:
    """Raise DamagedError if the scenario of a line, given with its data, does not match its hash."""
    scenario, named = data.get("scenario"), data.get("scenario_hash")
    with suppress(AttributeError, KeyError, TypeError, ValueError):  # it is no scenario
        sections = _sections(text)
        shared = {} if sections is None else {"workload": _canonical(sections[0]), "cluster": _canonical(sections[1])}
        if hash_of({key: value for key, value in scenario.items() if key not in shared}, shared) == named:
            return
    raise DamagedError(f"its scenario does not match its scenario_hash, {named}, so one of them was changed")


def begins_line(part: bytes, scenario_hash: str = "") -> bool:
    """Return whether an incomplete text is the beginning of the line of a scenario, or of any."""
    start = _BEGINNING + scenario_hash.encode()
    return part.startswith(start) or start.startswith(part)


def is_damage(error: ResultsError, path: Path) -> bool:
    """Return whether an unreadable line is damaged; the other lines of the file decide on an unclear one."""
    if not isinstance(error, UnclearError):
        return isinstance(error, DamagedError)
    return holds_lines(path)


def holds_lines(path: Path) -> bool:
    """Return whether a file has any line of a sweep, damaged or not; False for a pipe, which can be read only once."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return any(map(_is_ours, file))


def _is_ours(text: bytes) -> bool:
    return sum(key in text for key in _TELLING) > 1


def outcome_of(text: bytes) -> Outcome:
    """Return the outcome of a line; equal workloads and clusters of many lines are shared objects.

    Raises
    ------
    DamagedError
        Its checksum is wrong.
    ValueError
        The line has no outcome; a pydantic error if it is JSON.
    """
    if checksum_holds(text) is False:
        raise DamagedError(CHANGED)
    return _placed_outcome_of(text)[0]


def _placed_outcome_of(text: bytes) -> tuple[Outcome, int | None]:
    data = _with_shared_sections(text)
    if data is None:
        data = from_json(text, allow_inf_nan=False)
    place = _place_taken_from(data)
    if isinstance(data, dict):
        data.pop("wall_time_s", None)  # of earlier versions, beside what follows from the scenario
    model: type[Outcome] = Failure if isinstance(data, dict) and "failed" in data else Result
    return model.model_validate(data), place


def _place_taken_from(data: Any) -> int | None:
    """Remove and return the place in the data of a line, which does not belong to its outcome."""
    is_place = isinstance(data, dict) and type(data.get("place")) is int and data["place"] >= 0
    return data.pop("place") if is_place else None


@lru_cache(maxsize=256)
def _canonical(section: bytes) -> str:
    return json.dumps(from_json(section), sort_keys=True, separators=(",", ":"))


_workload = lru_cache(maxsize=256)(Workload.model_validate_json)
_cluster = lru_cache(maxsize=256)(Cluster.model_validate_json)


def _sections(text: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return workload, cluster, and the line with null instead of them; None if a sweep did not write it."""
    beginning = _HASH.match(text)
    if beginning is None or not text.startswith(_WORKLOAD, beginning.end()):
        return None
    begin = beginning.end() + len(_WORKLOAD)
    # no string of JSON contains a quotation mark without a backslash before it: these are keys, or the sections cut here are no JSON
    end = text.find(b"}" + _CLUSTER + b"{", begin) + 1
    rest = text.find(b"}" + _STRATEGY, end) + 1
    if not 0 < end < rest:
        return None
    return text[begin:end], text[end + len(_CLUSTER) : rest], text[:begin] + b"null" + _CLUSTER + b"null" + text[rest:]


def _with_shared_sections(text: bytes) -> dict[str, Any] | None:
    """Return the line's data with workload and cluster; None if a sweep did not write it."""
    if (sections := _sections(text)) is None:
        return None
    try:
        workload, cluster, data = _workload(sections[0]), _cluster(sections[1]), from_json(sections[2], allow_inf_nan=False)
    except (ValueError, RecursionError):  # reading all of it says what is wrong
        return None
    data["scenario"].update(workload=workload, cluster=cluster)
    return data  # type: ignore[no-any-return]


def checked_outcome_of(text: bytes) -> tuple[Outcome, int | None]:
    """Return the outcome of any line, and its place in the sweep, if it has one.

    Raises
    ------
    CutOffError
        It is no JSON, and has no end.
    UnclearError
        It is no JSON, or its checksum is another and nothing shows that a sweep wrote it.
    DamagedError
        It is one that a sweep wrote, and not as it was written.
    ResultsError
        It is no outcome, of another version, or holds what no simulation gives; the message says what.
    """
    holds = checksum_holds(text)
    if holds is False:
        cut = not text.rstrip().endswith(b"}")
        raise (CutOffError if cut else DamagedError if _is_ours(text) else UnclearError)(CHANGED)
    try:
        outcome, place = _placed_outcome_of(text)
    except ValidationError as error:
        # without a checksum, its beginning shows that it is one of ours; other keys are those of another version
        other = error.errors()[0]["type"] in _OTHER_VERSION and not _RENAMED.search(text)
        damaged = holds is None and _HASH.match(text) and not other
        raise (DamagedError if damaged else ResultsError)(_why_no_outcome(text, error)) from None
    except (ValueError, RecursionError) as error:
        raise _no_json(text, error) from None
    if outcome.scenario.hash != outcome.scenario_hash:  # an earlier version may have written fewer keys than there are now
        _check_hash(text, from_json(text, allow_inf_nan=False))
    if isinstance(outcome, Result):
        _check_plausible(outcome)
    return outcome, place


def _why_no_outcome(text: bytes, error: ValidationError) -> str:
    data = from_json(text, allow_inf_nan=False)
    if not isinstance(data, dict):
        return f"must be a result (a JSON object), not {_shown(data)}"
    version = data.get("schema_version")
    if isinstance(version, int) and version > _VERSION:
        newest = f"{version} is newer than {_VERSION}, the newest that this Paceline reads"
        return f"schema_version {newest}; update Paceline, or sweep again with this one"
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{where} is missing, so this is not a result of `paceline sweep` or `paceline simulate --json`"
    if first["type"] == "extra_forbidden":
        return f"{where} is not a known key of a result; another version wrote it, so sweep again with this one"
    if first["type"] == "union_tag_invalid":
        return f"{where}.kind: {first['ctx']['tag']!r} is unknown; install the package that defines it, or update Paceline"
    return f"{where + ': ' if where else ''}{_shown(first['input'])} is not valid: {' '.join(str(first['msg']).split())}"


def _no_json(text: bytes, error: ValueError | RecursionError) -> UnclearError:
    why = str(error)
    try:
        json.loads(text.decode())
    except json.JSONDecodeError as problem:
        why = problem.msg
    except UnicodeDecodeError:
        why = "it is not UTF-8 text"
    except (ValueError, RecursionError) as problem:
        why = type(problem).__name__
    return (UnclearError if text.endswith(b"\n") else CutOffError)(f"must be JSON, one result a line: {why}")


def _check_plausible(result: Result) -> None:
    """Refuse what no simulation gives, so that a line edited by hand cannot mislead."""
    rate, counts = result.throughput_samples_per_s, result.staleness.histogram
    if result.replicas < 1:
        raise ResultsError(f"replicas: {result.replicas} must be at least 1")
    for name in ("throughput_samples_per_s", "speedup", "step_time_s"):
        if (mean := getattr(result, name).mean) <= 0:
            raise ResultsError(f"{name}.mean: {mean:g} must be above zero")
    if not rate.low <= rate.high:
        raise ResultsError(f"throughput_samples_per_s: low ({rate.low:g}) must not be above high ({rate.high:g})")
    if len(counts.values) != len(counts.counts):
        raise ResultsError("staleness.histogram: must have as many counts as values")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


LineT = TypeVar("LineT")
_LEFT_OUT = "; left out; the same `paceline sweep` simulates"
_REASONS, _LINES_NAMED = 3, 20


class Outcomes(Short, Sequence[Outcome]):
    """Results and failures in the order of their scenarios.

    Attributes
    ----------
    path
        Their results file; None if they are only in memory.
    """

    path: Path | None
    _outcomes: Sequence[Outcome] | Written

    @property
    def failed(self) -> Sequence[int]:
        """Numbers, from 0, of the scenarios that could not be simulated."""
        known: Sequence[int] | None = getattr(self._outcomes, "failed", None)
        return [place for place, outcome in enumerate(self) if isinstance(outcome, Failure)] if known is None else known

    def __len__(self) -> int:
        return len(self._outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[Outcome]: ...
    def __getitem__(self, index: int | slice) -> Outcome | list[Outcome]:
        places = range(len(self))[index]
        return self._outcomes[places] if isinstance(places, int) else [self._outcomes[place] for place in places]

    @property
    def results(self) -> tuple[Result, ...]:
        """All results without failures; equal workloads and clusters are shared objects."""
        return tuple(outcome for outcome in self if isinstance(outcome, Result))

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Scenarios that could not be simulated, with reasons."""
        return tuple(outcome for outcome in (self[place] for place in self.failed) if isinstance(outcome, Failure))

    def _in_short(self) -> Iterator[str]:
        yield f"{counted(len(self), 'scenario')}{'' if self.path is None else f' in {self.path}'}"
        yield f"{len(self.failed):,} failed" if self.failed else ""

    def to_frame(self) -> pd.DataFrame:
        """Return a row per scenario: the settings that differ, then :data:`simulator.results.rows.COLUMNS`."""
        return frame_of(self)


class ResultsFile(Outcomes):
    """Contents of a results file.

    Attributes
    ----------
    notes
        Remarks on the file, such as that it was cut off.
    """

    see = "to_frame() has a row for each, [0] is the first; paceline.report(results) draws them"
    path: Path

    def __init__(self, path: Path, outcomes: Sequence[Outcome], notes: Sequence[str]) -> None:
        self.path, self.notes, self._outcomes = path, tuple(notes), outcomes

    def to_frame(self) -> pd.DataFrame:
        """Return a row per outcome, failures last: the settings that differ, then :data:`simulator.results.rows.COLUMNS`."""
        return frame_of((*self.results, *self.failures))

    def _repr_html_(self) -> str:
        """Return a table for a notebook: the first rows, with the main figures."""
        caption = f"Results of {len(self)} scenarios. {' '.join(self.notes)}".rstrip()
        return html_of((*self.results, *self.failures), caption, total=len(self))

    @classmethod
    def read(cls, path: str | Path) -> ResultsFile:
        """Read the results of a finished or unfinished sweep.

        An incomplete last line (of an interrupted sweep) is left out, and so are lines that were damaged or changed; notes say so. Other
        notes report lines without a checksum, and failed scenarios.

        Raises
        ------
        ResultsError
            The file is missing, unreadable or without results; or a line is not a result, has another version, or is not JSON in a file
            without lines of a sweep.

        Examples
        --------
        >>> import paceline
        >>> from tempfile import TemporaryDirectory
        >>> settings = {"run.steps": 10, "run.replications": 3}
        >>> with TemporaryDirectory() as folder:
        ...     swept = paceline.sweep("ring", {"strategy.workers": [1, 2]}, settings=settings, out=f"{folder}/ring.ndjson", jobs=1)
        ...     read = paceline.read_results(f"{folder}/ring.ndjson")
        >>> read.to_frame()["replicas"].tolist()
        [1, 2]
        """
        notes: list[str] = []
        read = cls(Path(path), outcomes_in(Path(path), notes), ())
        if failed := len(read.failed):
            reasons = "; ".join(dict.fromkeys(failure.failed.text for failure in read.failures[:_REASONS]))
            notes.append(f"{failed} of {len(read)} scenarios failed: {reasons}{'; ...' if failed > _REASONS else ''}")
        read.notes = tuple(notes)
        if failed < len(read):
            return read
        if failed:
            raise ResultsError(f"{path}: has no result: {notes[-1]}")
        if any(_LEFT_OUT in note for note in notes):
            raise ResultsError(f"{notes[0].removesuffix('.')}; there is no other result")
        raise ResultsError(f"{path}: has no {'complete ' if notes else ''}result; `paceline sweep` writes them")


read_results = ResultsFile.read


def in_order(lines: Iterable[tuple[str, int | None, LineT]]) -> list[LineT]:
    """Return the valid lines of a results file, in the order of the sweep.

    A finished file is in order, and its lines have no places. A line with a place was written when its simulation ended. The last line of a
    scenario counts.

    Parameters
    ----------
    lines
        The scenario's hash, the line's place in the sweep, if any, and the line or its substitute; in the order of the file.
    """
    kept: dict[str, tuple[int, LineT]] = {}
    for number, (scenario_hash, place, line) in enumerate(lines):
        at = kept[scenario_hash][0] if scenario_hash in kept else number
        kept[scenario_hash] = (at if place is None else place, line)
    return [line for _, line in sorted(kept.values(), key=lambda entry: entry[0])]


def outcomes_in(path: Path, notes: list[str] | None = None) -> list[Outcome]:
    """Return the outcomes of a sweep, in its order; otherwise as :meth:`ResultsFile.read`.

    Parameters
    ----------
    path
        The file; it may be written by hand, with empty lines and keys in any order.
    notes
        Receives sentences on lines that are left out, and on those without a checksum.

    Raises
    ------
    ResultsError
        As in :meth:`ResultsFile.read`, but a file may be empty.
    """
    notes = notes if notes is not None else []
    read: list[tuple[str, int | None, Outcome]] = []
    left_out: dict[str, list[int]] = {}
    unsure = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.strip():
                    continue
                try:
                    outcome, place = checked_outcome_of(text)
                except ResultsError as error:
                    if number == 1 and not is_damage(error, path) and (said := mistaken(path, "results")):
                        raise ResultsError(f"{path}: {said}") from None
                    if isinstance(error, CutOffError) and not line.endswith(b"\n"):
                        notes.append(
                            f"The results file ends in the middle of line {number}, as after an interruption; that line is left out."
                        )
                    elif (read and isinstance(error, DamagedError)) or is_damage(error, path):
                        left_out.setdefault(str(error), []).append(number)
                    else:
                        raise ResultsError(f"{path}:{number}: {error}") from None
                else:
                    unsure += checksum_holds(text) is None
                    read.append((outcome.scenario_hash, place, outcome))
    except FileNotFoundError:
        hint = no_such_file(path, "check the path, or write it with `paceline sweep`")
        raise ResultsError(f"{path}: {hint}") from None
    except (OSError, ValueError) as error:  # a ValueError where the path has a zero byte
        raise ResultsError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}") from None
    for why, numbers in left_out.items():
        places = shortly_listed([f"{path}:{number}" for number in numbers], _LINES_NAMED)
        notes.append(f"{places}: {why}{_LEFT_OUT} {'it' if len(numbers) == 1 else 'them'} again.")
    if unsure:
        notes.append(
            f"{counted(unsure, 'line')} of {path} {'has' if unsure == 1 else 'have'} no checksum, "
            "so changes to the figures cannot be detected."
        )
    ordered = in_order(read)
    if repeated := sum(isinstance(outcome, Result) for _, _, outcome in read) - sum(isinstance(outcome, Result) for outcome in ordered):
        notes.append(f"{path}: {doubled_in_words(repeated)}")
    return ordered
