"""Reads TOML files, every fault told in one line; :mod:`simulator.base.outputs` has what is written."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from simulator.base.errors import ScenarioError
from simulator.base.file_kinds import mistaken
from simulator.base.nearest import no_such_file
from simulator.base.units import vanishes


def _flat(error: Exception) -> str:
    return " ".join(str(error).split())


def exact(text: str) -> float:
    """A number of TOML that is no whole one, as ``parse_float`` of :func:`tomllib.loads` takes it.

    Raises
    ------
    ScenarioError
        It is so small that it would be read as 0.
    """
    value = float(text)
    if value == 0 and vanishes(text):
        raise ScenarioError(f"{text[:40]} is too small to be told from 0: write 0, or the value that is meant")
    return value


_MAX_FILE_BYTES = 64 * 2**20


def read_toml(path: str | Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises
    ------
    ScenarioError
        It is missing, not readable, too large, no UTF-8 or no TOML.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ScenarioError(f"{path}: is larger than {_MAX_FILE_BYTES} bytes, which no scenario is; check the path")
        return tomllib.loads(content.decode("utf-8-sig"), parse_float=exact)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    except FileNotFoundError:
        raise ScenarioError(f"{path}: {no_such_file(path)}") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror or type(error).__name__}; give a TOML file") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: is no text in UTF-8 (byte {error.start}); give a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: {mistaken(path) or f'is no valid TOML: {_flat(error)}'}") from None
    except RecursionError:
        raise ScenarioError(f"{path}: is nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits, a path with a zero byte
        raise ScenarioError(f"{path}: cannot be read: {str(error).partition(':')[0]}") from None
