"""Many cases inside one test: thousands of tests of their own take longer to be collected than to run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test with every one of some values, one after the other; what fails says with which.

    Parameters
    ----------
    names
        One argument of the test, or several separated by commas.
    values
        What the argument is each time; for several names, a tuple of theirs.
    """
    arguments = [name.strip() for name in names.split(",")]
    cases = [dict(zip(arguments, value if len(arguments) > 1 else (value,), strict=True)) for value in values]
    assert cases, "nothing would be tested"

    def looped(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*given: Any, **fixtures: Any) -> None:
            for case in cases:
                try:
                    test(*given, **fixtures, **case)
                except Exception as error:
                    error.add_note(f"with {', '.join(f'{name} = {value!r}' for name, value in case.items())}")
                    raise

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return looped
