"""Files that Paceline reads and writes: TOML, kinds of files, outputs, checksums.

:func:`read_toml` tells every fault in one line. :func:`mistaken` tells a file of the wrong kind by its keys, and names the command that
takes it: keys are those of the formats (specifications, lines of results, measurements), so a format or command that changes is changed
here too. An :class:`Output` replaces a file only if that is empty, or of the very kind that is written there; anything else needs
``force``. This is found out before the work, and nothing is made before there is something to write.
A checksum as the last key of an object of JSON shows what was damaged or changed later; ``_with_checksum`` in
calibrate/probes/recording.py makes the same without importing this: change both together.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import itertools
import json
import os
import shlex
import stat
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from simulator.base.errors import InputError, PacelineError, ScenarioError
from simulator.base.text import no_such_file
from simulator.base.units import vanishes


def exact(text: str) -> float:
    """A number of TOML that is no whole one, as ``parse_float`` of :func:`tomllib.loads` takes it.

    Raises
    ------
    ScenarioError
        It is so small that it would be read as 0.
    """
    value = float(text)
    if value == 0 and vanishes(text):
        raise ScenarioError(f"{text[:40]} is too small to differ from 0: write 0, or the intended value")
    return value


_MAX_FILE_BYTES = 64 * 2**20


def bytes_of(
    path: str | Path,
    refusal: type[PacelineError] = InputError,
    *,
    named: str = "",
    hint: str = "check the path",
    missing: str = "check the path",
    most: int | None = None,
) -> bytes:
    """Read a whole file.

    Parameters
    ----------
    path, refusal
        The file, and the class of errors.
    named
        Begins messages in place of the path.
    hint, missing
        What to do where the file cannot be read, and where there is none.
    most
        Its most bytes.

    Raises
    ------
    InputError
        It is missing, not readable, or too large.
    """
    named = named or str(path)
    try:
        with open(path, "rb") as file:
            content = file.read(-1 if most is None else most + 1)
    except FileNotFoundError:
        raise refusal(f"{named}: {no_such_file(path, missing)}") from None
    except (OSError, ValueError) as error:  # a ValueError where the path has a zero byte
        raise refusal(f"{named}: cannot be read: {_reason(error)}; {hint}") from None
    if most is not None and len(content) > most:
        raise refusal(f"{named}: is larger than {most // 2**20} MiB, the limit for such a file: check the path")
    return content


def text_of(content: bytes, path: str | Path, refusal: type[PacelineError] = InputError, hint: str = "save it as UTF-8") -> str:
    """Decode UTF-8, with or without a byte order mark; raises ``refusal`` for anything else."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refusal(f"{path}: is not UTF-8 text (byte {error.start}): {hint}") from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises
    ------
    ScenarioError
        It is missing, not readable, too large, no UTF-8 or no TOML.
    """
    content = bytes_of(path, ScenarioError, hint="give a TOML file", most=_MAX_FILE_BYTES)
    text = text_of(content, path, ScenarioError, "give a TOML file")
    try:
        return toml_in(text)
    except ScenarioError as error:
        said = str(error)
        raise ScenarioError(f"{path}: {(mistaken(path) if said.startswith(_NO_TOML) else None) or said}") from None


_NO_TOML = "is not valid TOML"


def toml_in(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises
    ------
    ScenarioError
        It is no TOML, or has a number that is lost in reading.
    """
    try:
        return tomllib.loads(text, parse_float=exact)
    except ScenarioError:
        raise
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{_NO_TOML}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ScenarioError("is nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise ScenarioError(f"cannot be read: {str(error).partition(':')[0]}") from None


def toml_value(text: str) -> Any:
    """Return the value that a text is in TOML; None where it is none, or more than one."""
    try:
        table = tomllib.loads(f"value = {text}\n", parse_float=exact)
    except (ValueError, RecursionError):
        return None
    return table["value"] if len(table) == 1 else None


Is: TypeAlias = Literal[
    "scenario", "workload", "cluster", "device", "input", "fault", "testbed-setting", "matrix", "results", "plan", "learned",
    "measurements", "steps", "keras-model",
]  # fmt: skip


class FileKind(NamedTuple):
    """A kind of file: its name with an article, what a person does with one at the path ``{}``, and whether a table is of it."""

    what: str
    use: str
    holds: Callable[[Mapping[str, Any]], bool]


def _any(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda table: any(key in table for key in keys)


def _every(*keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda table: all(key in table for key in keys)


def _any_of(kind: type, *keys: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda table: any(isinstance(table.get(key), kind) for key in keys)


_RING = "`paceline simulate ring --set"
_MEANS = tuple(f"{what}_mtbf{unit}" for what in ("worker", "server", "node", "job") for unit in ("", "_s"))
_IN_TOML: dict[Is, FileKind] = {
    "scenario": FileKind(
        "a scenario",
        "simulate it with `paceline simulate {}`",
        _any_of(Mapping, "workload", "cluster", "strategy", "run", "training", "job"),
    ),
    "matrix": FileKind("a matrix of testbed settings", "run it with `paceline validate --matrix {}`", _any_of(list, "fit", "held_out")),
    "workload": FileKind("a workload", f"try it in a scenario: {_RING} workload.use={{}}`", _any("variables", "transformer", "residual")),
    "cluster": FileKind("a cluster", f"try it in a scenario: {_RING} cluster.use={{}}`", _any("inter_node")),
    "device": FileKind("a device", "see it with `paceline models show {}`", _any("generation")),
    "input": FileKind("an input pipeline", f"try it in a scenario: {_RING} input.use={{}}`", _any("work")),
    "fault": FileKind(
        "a file of faults", f"try it in a job: {_RING} job.samples=1e9 --set job.faults.use={{}}`", _any(*_MEANS, "preemption")
    ),
    "testbed-setting": FileKind(
        "a setting of the testbed",
        "run it with `paceline testbed run {}`",
        lambda table: "mode" in table and ("workers" in table or "model" in table),
    ),
}
_IN_JSON: dict[Is, FileKind] = {
    "results": FileKind("a results file", "draw it with `paceline report {}`", _any("scenario_hash")),
    "measurements": FileKind("a file of measurements", "", lambda table: table.get("kind") == "header" and "probe" in table),
    "steps": FileKind(
        "a record of steps",
        "compare it with a prediction: `paceline watch SCENARIO.toml {}`",
        lambda table: table.get("format") == "paceline-steps",
    ),
    "learned": FileKind("an answer about learning", "draw it with `paceline report {}`", _every("problem", "target", "ways")),
    "plan": FileKind(
        "the answer of a plan", "draw it with its results: `paceline report RESULTS.ndjson --plan {}`", _every("goal", "chosen")
    ),
    "keras-model": FileKind("the configuration of a Keras model", "", _every("class_name", "config")),
}
_WITH_MEASUREMENTS: Mapping[str, str] = {
    "step": "fit them with `paceline calibrate --from-measurements {}`",
    "input": "fit them with `paceline calibrate-input --from-measurements {}`",
    "testbed": "summarise them with `paceline testbed show {}`",
}
"""What to do with measurements, by the probe that made them."""
_PYTHON = FileKind("a Python file", "measure a model that it builds with `paceline calibrate {}:FUNCTION --name NAME`", lambda _: True)
_PAGE = FileKind("an HTML page", "open it in a browser", lambda _: True)
_CELLS = FileKind("a table (CSV)", "give it to `paceline report --measured` or `paceline validate --measured`", lambda _: True)
_FIRST_BYTES = 2**26


def kind_of_table(table: Mapping[str, Any]) -> Is | None:
    """Return the kind of a table read from TOML; None where it is nothing that Paceline reads."""
    return next((name for name, kind in _IN_TOML.items() if kind.holds(table)), None)


def is_json_of(path: Path, kind: Is) -> bool:
    """Return whether a file is one object of JSON, and of this kind."""
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and _IN_JSON[kind].holds(data)


def mistaken_table(table: Mapping[str, Any], path: str | Path, wanted: Is | None) -> str | None:
    """Say that a table is of another kind than is wanted, and what to do with it; None where it is not."""
    actual = kind_of_table(table)
    return None if actual is None or actual == wanted else _sentence(_IN_TOML[actual], path)


def mistaken(path: str | Path, wanted: Is | None = None) -> str | None:
    """Say that a file is of another kind than is wanted, and what to do with it; None where that cannot be told."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_FIRST_BYTES)
    except (OSError, ValueError):
        return None
    text = content.decode("utf-8-sig", "replace")
    try:
        return mistaken_table(tomllib.loads(text), path, wanted)
    except (ValueError, RecursionError):
        pass
    return _other_text(text, path, wanted)


def _other_text(text: str, path: str | Path, wanted: Is | None) -> str | None:
    """Tell what is no TOML: lines of JSON, one object of it, a page or a table."""
    for candidate in (text.partition("\n")[0], text):
        try:
            data = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        actual = next((name for name, kind in _IN_JSON.items() if isinstance(data, dict) and kind.holds(data)), None)
        if actual is None or actual == wanted:
            return None
        return _sentence(_IN_JSON[actual], path, _WITH_MEASUREMENTS.get(str(data.get("probe")), ""))
    if str(path).endswith(".py"):
        return _sentence(_PYTHON, path)
    start = text.lstrip()[:200].lower()
    if start.startswith(("<!doctype html", "<html")):
        return _sentence(_PAGE, path)
    if "," in start.partition("\n")[0] and str(path).endswith(".csv"):
        return _sentence(_CELLS, path)
    return None


def _sentence(kind: FileKind, path: str | Path, use: str = "") -> str:
    todo = (use or kind.use).format(shlex.quote(str(path)))
    return f"is {kind.what}; {todo}" if todo else f"is {kind.what}"


_MARKED_WITHIN = 4096
"""Bytes at the beginning of a file that contain its mark."""


class OutputKind(NamedTuple):
    """A kind of file that a command writes, and may therefore replace."""

    what: str
    """Said of a file that is not of it, such as ``"is no machine that a fit wrote"``."""
    holds: Callable[[Path], bool]
    """Whether a file with content is of this kind."""
    ending: str = ""
    """Ending of the file's name, such as ``".html"``; any that promises no other format will do too."""


EDITED = OutputKind("", lambda _: False, ".toml")
"""A file that people continue to edit, such as a scenario: it is never replaced."""


def marked_kind(what: str, mark: str | bytes, ending: str = ".html") -> OutputKind:
    """Files, such as a ``"report"``, that have a mark of Paceline's within their first bytes, which those of earlier versions may lack."""
    data = mark.encode() if isinstance(mark, str) else mark

    def holds(path: Path) -> bool:
        with path.open("rb") as file:
            return data in file.read(_MARKED_WITHIN)

    return OutputKind(f"is not a {what} of this version of Paceline", holds, ending)


def csv_kind(columns: Sequence[str]) -> OutputKind:
    """Tables (CSV) with this very heading."""
    return OutputKind("is not a table with the same columns", lambda path: has_header(path, columns), ".csv")


def has_header(path: Path, columns: Sequence[str]) -> bool:
    """Return whether a file begins with the heading of a table (CSV) of these columns."""
    return heading_of(path) == list(columns)


def heading_of(path: Path) -> list[str]:
    """The columns that a table (CSV) has by its first line; none where the file is no text.

    Raises
    ------
    OSError
        It cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def fitted_kind(what: str, key: str) -> OutputKind:
    """Files (TOML) that a calibration wrote: they have ``key``, and say where they come from."""
    return OutputKind(f"is not a calibrated {what} file", lambda path: key in fitted_table(path), ".toml")


def fitted_table(path: Path) -> Mapping[str, Any]:
    """Read a file (TOML) whose ``provenance`` tells by which ``command`` it was made; any other is an empty table."""
    try:
        table = read_toml(path)
    except ScenarioError:
        return {}
    provenance = table.get("provenance")
    return table if isinstance(provenance, Mapping) and "command" in provenance else {}


class Output:
    """A file that may be written, which is made sure when it is made and once more when it is written.

    Parameters
    ----------
    path
        The file.
    kind
        What is written.
    force
        Replace whatever is there.
    argument
        Of the library, by which a user names the file.
    beside
        Whether it is in the same folder as the file that the argument names.
    reads
        Files that are read, which it must not be.

    Raises
    ------
    InputError
        It cannot be written, is a file that is read, or something else is there, which is not replaced; or its name promises another
        format.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Output(Path(folder, "x.csv"), csv_kind(["a"])).write("a\\n1\\n")
    ...     again = Output(Path(folder, "x.csv"), csv_kind(["a"])).write("a\\n2\\n").read_text()
    ...     Output(Path(folder, "x.csv"), csv_kind(["b"]))
    Traceback (most recent call last):
        ...
    simulator.base.errors.InputError: `out`: ... exists already and is not a table with the same columns; overwrite it with ...
    """

    def __init__(
        self,
        path: Path,
        kind: OutputKind,
        *,
        force: bool = False,
        argument: str = "out",
        beside: bool = False,
        reads: Iterable[Path] = (),
    ) -> None:
        self.path = path
        self._kind, self._force, self._argument, self._reads = kind, force, argument, tuple(reads)
        self._named = "" if beside else f"`{argument}`: "
        self.check()

    def check(self) -> None:
        """Make sure that it may be written; errors as of the class."""
        try:
            check_writable(self.path, *self._reads)
        except InputError as error:
            raise InputError(f"{self._named}{error}") from None
        if not (self._force or _is_device(self.path) or not self.path.is_file() or not self.path.stat().st_size):
            try:
                own = self._kind.holds(self.path)
            except OSError as error:
                raise InputError(f"{self._named}{str(self.path)!r}: cannot be read: {error.strerror}; choose another name") from None
            if not own:
                what = f" and {self._kind.what}" if self._kind.what else ""
                todo = f"overwrite it with `force=True`, or choose another `{self._argument}`"
                raise InputError(f"{self._named}{str(self.path)!r}: exists already{what}; {todo}")
        if self._kind.ending:
            check_ending(self.path, self._kind.ending, self._named)

    def write(self, content: str | bytes) -> Path:
        """Write the file, whole or not at all, and make its folder; errors as of the class."""
        self.check()
        return _write_whole(self.path, content)


def check_writable(path: Path, *reads: Path | None) -> Path:
    """Make sure that a file can be written, before hours are spent on its content; nothing is made yet, no folder either.

    Raises
    ------
    InputError
        It is a folder, or one of the files that are read, or its folder cannot be made or written to.
    """
    shown = repr(str(path)[:120])
    try:
        if path.exists() and any(read is not None and read.exists() and path.samefile(read) for read in reads):
            raise InputError(f"{shown}: is the input file; choose another name")
        if path.is_dir():
            raise InputError(f"{shown}: is a folder; give the name of a file")
        if _is_device(path):
            return path
        _check_room(path.parent)
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"{shown}: exists and is not writable; choose another name")
    except (OSError, ValueError) as error:
        raise InputError(f"{shown}: cannot be written: {_reason(error)}; choose another path") from None
    return path


_FORMATS = {
    ".csv": "a table (CSV)", ".html": "a page (HTML)", ".json": "JSON", ".md": "Markdown", ".ndjson": "lines of JSON",
    ".parquet": "Parquet", ".pdf": "PDF", ".png": "a picture (PNG)", ".svg": "a picture (SVG)", ".toml": "TOML",
    ".tsv": "a table (TSV)", ".xlsx": "a workbook",
}  # fmt: skip
"""File format by the ending of a file's name."""


def check_ending(path: Path, ending: str, named: str = "", hint: str = "") -> None:
    """Raise InputError where the name of a file promises another format than that of ``ending``; ``hint`` says how to get the other."""
    if path.suffix.lower() in _FORMATS.keys() - {ending}:
        todo = f"name it {str(path.with_suffix(ending))[:120]!r}{hint}"
        raise InputError(f"{named}{str(path)[:120]!r}: is written as {_FORMATS[ending]}, not as {_FORMATS[path.suffix.lower()]}; {todo}")


def check_folder(folder: Path, argument: str = "") -> Path:
    """Make sure, before the work, that files can be written into a folder, which is not made yet where it is not there.

    Parameters
    ----------
    folder
        The folder.
    argument
        Of the library, by which a user names it; it begins the message.

    Raises
    ------
    InputError
        It, or a part of its path, is a file, or it cannot be made or written to.
    """
    shown = f"`{argument}`: {str(folder)[:120]!r}" if argument else repr(str(folder)[:120])
    try:
        if (obstacle := next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)) is not None:
            raise InputError(f"{shown}: {'is' if obstacle == folder else f'{obstacle} is'} a file, not a folder; choose another folder")
        _check_room(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"{shown}: cannot be written to: {_reason(error)}; choose another folder") from None
    return folder


def check_apart(outputs: Iterable[tuple[str, Path | None]]) -> None:
    """Make sure that no two outputs are one file.

    Parameters
    ----------
    outputs
        What each is called in a message, such as ``"`out`"``, and its path; None where it is not written.

    Raises
    ------
    InputError
        Two are.
    """
    written = [(name, path) for name, path in outputs if path is not None]
    for (name, path), (other, second) in itertools.combinations(written, 2):
        if path.resolve() == second.resolve() and not _is_device(path):
            raise InputError(f"{name} and {other} are both {str(path)!r}: give two names")


def _write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file through a temporary one in the same folder, so that it is never visible half written; a device is written to, not
    replaced."""
    target = Path(os.path.realpath(path))
    try:
        data = content.encode() if isinstance(content, str) else content
        if _is_device(target):
            target.write_bytes(data)
            return path
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write(data)
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)[:120]!r}: cannot be written: {_reason(error)}; choose another path") from None
    return path


@contextmanager
def replacing(target: Path) -> Iterator[tempfile._TemporaryFileWrapper[bytes]]:
    """Open a file in the same folder that takes another's place at the end of the block, or not at all if an error ends it."""
    file = tempfile.NamedTemporaryFile(dir=target.parent, prefix=".paceline-", suffix=".partial", delete=False)  # noqa: SIM115
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the new name without its content
        os.chmod(file.name, _mode_of(target))
        os.replace(file.name, target)
    except BaseException:
        Path(file.name).unlink(missing_ok=True)
        raise


def _mode_of(path: Path) -> int:
    """Return the permissions of a file: as before where it is there, else those of new files."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    hidden = os.umask(0o077)
    os.umask(hidden)
    return 0o666 & ~hidden


def _is_device(path: Path) -> bool:
    """Return whether a path is neither file nor folder, such as ``/dev/null``: writing there replaces nothing."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _check_room(folder: Path) -> None:
    """Raise OSError unless a file can be made in a folder, or where it is not there yet, in the nearest one above it."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if there.is_file():
        raise NotADirectoryError(errno.ENOTDIR, f"{there} is a file, not a folder")
    with tempfile.TemporaryFile(dir=there):  # without a name from its first moment on
        pass


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


KEY = "checksum"
CHANGED = f"does not match its {KEY} (damaged or edited)"
"""Message if :func:`checksum_holds` returns False."""

_KEY = f'"{KEY}"'.encode()


def with_checksum(text: str) -> str:
    """A JSON object whose last key is the checksum of everything before it.

    >>> with_checksum('{"a":1}')
    '{"a":1,"checksum":"8b0f0d75aabe01bb"}'
    """
    before = text.removesuffix("}")
    return before + _ending(before.encode()).decode()


def without_checksum(text: bytes) -> bytes:
    """An object of JSON as :func:`with_checksum` was given it."""
    before, key, _ = text.rpartition(b"," + _KEY)
    return before + b"}" if key else text


def checksum_holds(text: bytes) -> bool | None:
    """Return whether an object of JSON is as :func:`with_checksum` made it; None where it has no checksum.

    >>> [checksum_holds(text) for text in (b'{"a":1,"checksum":"8b0f0d75aabe01bb"}', b'{"a":2,"checksum":"8b0f0d75aabe01bb"}', b'{"a":1}')]
    [True, False, None]
    """
    before, key, rest = text.rstrip(b" \t\r\n").rpartition(_KEY)  # in a string its quotation marks have backslashes before them
    if not key or not rest.lstrip().startswith(b":"):
        return None
    return before.endswith(b",") and _KEY + rest == _ending(before[:-1])[1:]


def _ending(before: bytes) -> bytes:
    return b"," + _KEY + b':"' + hashlib.sha256(before).hexdigest()[:16].encode() + b'"}'
