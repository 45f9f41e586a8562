"""Arguments of the library's functions: of the wrong kind they are refused with one sentence, before anything is done."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, InstanceOf, TypeAdapter, ValidationError

from simulator.errors import InputError
from simulator.validation_errors import quoted

__all__ = ["checked"]

ParamsT = ParamSpec("ParamsT")
AnswerT = TypeVar("AnswerT")

_NUMBER_OR_TEXT = "a number, or text with a unit"
_MUST_BE = {
    "scenario": "a file, a name such as 'ring', nested tables or a loaded scenario",
    "settings": "keys with values, such as {'strategy.workers': 8}",
    "prices": "prices by the name of a cluster, such as {'ethernet-1g': '0.40/h'}, or one for all clusters without any, such as '0.40/h'",
    "over": "keys with lists of values, such as {'strategy.workers': [1, 2, 4]}",
    "out": "the path of a file",
    "jobs": "a whole number; 0 takes all cores",
    "backend": "'local', 'dask' or 'ray'",
    "scheduler": "the address of a cluster, such as 'tcp://127.0.0.1:8786'",
    "progress": "a function",
    "target_throughput": f"{_NUMBER_OR_TEXT}, such as '20000 samples/s'",
    "samples": "a number, such as 1.28e6",
    "epochs": "a number, such as 90",
    "deadline": f"{_NUMBER_OR_TEXT}, such as '12 h'",
    "budget": f"{_NUMBER_OR_TEXT}, such as '500 USD'",
    "confidence": "a number such as 0.95",
    "prefer": "'cheapest', 'fastest' or 'fewest-devices'",
    "clusters": "a list of names or paths, such as ['ethernet-10g']",
    "strategies": "a list of names, such as ['ring', 'async-ps']",
    "workers": "a range such as '1..64', or a list of whole numbers",
    "servers": "a range such as '1..8', or a list of whole numbers",
    "scaling": "'weak', 'strong' or 'both'",
    "title": "text",
    "measured": "the path of a CSV file",
    "builder": "text such as 'my_model.py:build'",
    "name": "text",
    "batches": "a list of batch sizes, such as [16, 32, 64]",
    "device": "text such as 'CPU' or 'GPU:1'",
    "precision": "'float32' or 'mixed_float16'",
    "python": "the path of a Python",
    "measurements": "the path of a folder",
    "steps": "a whole number",
    "runs": "a whole number",
    "at_once": "a whole number",
    "launches": "a whole number",
    "timeout_s": "a number of seconds",
    "ours": "a result, such as `paceline.simulate` gives",
    "theirs": "a result, such as `paceline.simulate` gives",
}
"""What an argument must be: the same name means the same everywhere; others are not looked at."""


def checked(function: Callable[ParamsT, AnswerT]) -> Callable[ParamsT, AnswerT]:
    """The function, refusing arguments that are not of the kind that their annotations name.

    Numbers and arrays of numpy are given to it as Python's own.

    Raises
    ------
    InputError
        By the function that is returned: an argument is of another kind.

    Examples
    --------
    >>> @checked
    ... def twice(jobs: int) -> int:
    ...     return 2 * jobs
    >>> twice(np.int64(4))
    8
    >>> twice("four")
    Traceback (most recent call last):
        ...
    simulator.errors.InputError: jobs: 'four' must be a whole number; 0 takes all cores
    """
    signature = inspect.signature(function)

    @cache
    def kind_of(name: str) -> TypeAdapter[Any]:
        # evaluated one by one: what is returned may be imported for type checkers only
        annotation = signature.parameters[name].annotation
        kind = eval(annotation, getattr(function, "__globals__", {})) if isinstance(annotation, str) else annotation  # noqa: S307
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return TypeAdapter(InstanceOf[kind])  # type: ignore[misc, valid-type]
        return TypeAdapter(kind, config=ConfigDict(strict=True, arbitrary_types_allowed=True))

    @wraps(function)
    def call(*args: ParamsT.args, **named: ParamsT.kwargs) -> AnswerT:
        given = signature.bind(*args, **named)
        for name, value in given.arguments.items():
            if name not in _MUST_BE:
                continue
            if isinstance(value, (np.generic, np.ndarray)):
                given.arguments[name] = value = value.tolist()
            try:
                kind_of(name).validate_python(value)
            except ValidationError:
                raise InputError(f"{name}: {quoted(value)} must be {_MUST_BE[name]}") from None
        return function(*given.args, **given.kwargs)

    return call
