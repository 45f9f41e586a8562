"""Sizes of a model's variables, which a profile does not tell: from the model, a checkpoint or a list."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from calibrate.profiling import check_target
from calibrate.xplane.reading import run_reader
from simulator.errors import InputError

__all__ = ["ModelVariable", "ModelVariables", "variables_of"]

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


class ModelVariable(BaseModel):
    """One trainable variable: its name, shape and type."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1)
    shape: tuple[Annotated[int, Field(ge=1)], ...]
    dtype: str = "float32"
    size_bytes: float | None = Field(default=None, gt=0)

    @property
    def bytes(self) -> float:
        """Bytes of the variable."""
        return self.size_bytes if self.size_bytes is not None else float(math.prod(self.shape) * _BYTES[self.dtype])


@dataclass(frozen=True)
class ModelVariables:
    """The trainable variables of a model.

    Attributes
    ----------
    variables
        In the order in which the model created them, as far as the source tells.
    source
        Where they were read.
    order
        ``creation``; or ``object graph`` or ``alphabetical``, where only that was to be had.
    """

    variables: tuple[ModelVariable, ...]
    source: str
    order: str


_LIST: TypeAdapter[list[ModelVariable]] = TypeAdapter(list[ModelVariable])


def variables_of(
    model: str | None = None,
    checkpoint: Path | None = None,
    listed: Path | None = None,
    python: str | None = None,
    timeout_s: float | None = None,
) -> ModelVariables | None:
    """The variables of a model from the one source that is given; None if none is.

    Parameters
    ----------
    model
        ``FILE.py:FUNCTION`` that returns a Keras model, or a tuple that begins with one.
    checkpoint
        A checkpoint (prefix or folder), a SavedModel's folder, or a ``.keras`` file.
    listed
        A JSON file: ``[{"name": "dense/kernel", "shape": [784, 10], "dtype": "float32"}, ...]`` in
        the order of creation.
    python, timeout_s
        The user's Python, which builds the model or reads the checkpoint, and its time limit.

    Raises
    ------
    InputError
        More than one is given, or the one given cannot be used.
    CalibrationError
        The user's code failed.
    """
    given = [option for option, value in (("MODEL.py:FUNCTION", model), ("--checkpoint", checkpoint), ("--variables", listed)) if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)}: give one of them, from which the sizes of variables are read")
    if listed is not None:
        return ModelVariables(_read_list(listed), str(listed), "creation")
    if model is not None:
        check_target(model, "MODEL.py:FUNCTION")
        return _read(["--model", model], python, timeout_s)
    if checkpoint is not None:
        return _read(["--checkpoint", str(checkpoint)], python, timeout_s)
    return None


def _read(arguments: list[str], python: str | None, timeout_s: float | None) -> ModelVariables:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "variables.json"
        run_reader("xplane_variables.py", arguments, out, python, timeout_s)
        found = json.loads(out.read_text(encoding="utf-8"))
    return ModelVariables(tuple(_LIST.validate_python(found["variables"])), found["source"], found["order"])


def _read_list(path: Path) -> tuple[ModelVariable, ...]:
    example = '[{"name": "dense/kernel", "shape": [784, 10], "dtype": "float32"}]'
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--variables {path}: cannot be read: {error.strerror or error}; check the path") from None
    except (ValueError, RecursionError):
        raise InputError(f"--variables {path}: is no JSON; give a list such as {example}") from None
    try:
        rows = _LIST.validate_python(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in problem["loc"]) or "the file"
        raise InputError(f"--variables {path}: {place}: {problem['msg']}; give a list such as {example}") from None
    if not rows:
        raise InputError(f"--variables {path}: names no variable; give a list such as {example}")
    for row in rows:
        if row.size_bytes is None and row.dtype not in _BYTES:
            raise InputError(f"--variables {path}: {row.name}: dtype {row.dtype!r} must be one of {', '.join(_BYTES)}, or give size_bytes")
    names = [row.name for row in rows]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise InputError(f"--variables {path}: {double!r} is named twice; a variable has one line")
    return tuple(rows)
