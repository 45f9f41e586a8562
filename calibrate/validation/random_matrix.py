"""Matrices whose held-out settings are drawn at random, from a space that is declared here.

A person who chooses settings chooses, without wishing it, what the model is good at. A
seed does not. Equal seeds draw equal settings on any machine and with any version of
NumPy: choices are made by integer arithmetic on the raw output of PCG64, seeded by a
``SeedSequence``, both of which NumPy keeps as they are (NEP 19). The first settings of a
longer matrix are those of a shorter one.

The space is for machines of two cores and more:

- The group of a setting goes by its place, as in :data:`TURNS`: from five settings on each
  group is there, and of twelve in a row four are parameter servers on fair links and two of
  each other group.
- Emulated workers sleep and take no core, so there are up to 16 with servers and up to 8 in
  a ring, where each moves bytes all the time; workers that compute really are at most 4.
  All links that can be busy at once carry at most 2 Gbit/s (servers) and 3.2 Gbit/s (ring)
  each way together, which two cores can move.
- The mean of emulated compute follows from the rate, so that link and compute both matter:
  the busiest link would be in use for 40, 70, 100 or 140% of the time, and compute is at
  least half as long as what a single worker's bytes take.
- A run takes 10 to 40 s by a guess (:func:`~calibrate.testbed.running.guessed_run_s`); steps follow.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tomlkit

from calibrate.testbed.loading import of_workload
from calibrate.testbed.running import busiest_share, guessed_step_s
from calibrate.testbed.setting import TestbedSetting, TestbedVariable, synthetic_variables
from calibrate.validation.matrix import Matrix, matrix_of, read_matrix
from simulator.base import catalog
from simulator.base.errors import InputError
from simulator.base.files import read_toml

SERVERS, RING, LAYERS, TCP, CORES = GROUPS = ("PS, fair links", "ring, fair links", "layer by layer", "TCP's own sharing", "shared cores")
TURNS = (SERVERS, RING, TCP, CORES, LAYERS, SERVERS, RING, SERVERS, TCP, CORES, LAYERS, SERVERS)
"""The group of each setting in turn, over and over."""
DEFAULT_COUNT = 12
MOST = 200
"""Settings of a matrix."""

_FIT = "fit"
"""The matrix that holds the fit's part of every random one."""
_WORKERS = (2, 3, 4, 5, 6, 8, 10, 12, 16)
_FEW_WORKERS = (2, 3, 4, 5, 6, 8)
_REAL_WORKERS = (2, 3, 4)
_MBIT_PER_S = (100, 200, 300, 400, 600, 800, 1000)
_MOST_MBIT_PER_S = {SERVERS: 2000, TCP: 2000, RING: 3200}
_BUFFER_MS = (10, 20, 40)
_NETWORK = "cnn-cpu"
_MODELS = (
    "ladder-1mb", "ladder-1mb/16", "ladder-4mb", "ladder-4mb/8", "ladder-4mb/16", "ladder-16mb", "ladder-16mb/32",
    "uneven-1mb", "uneven-4mb", "uneven-4mb/3", "uneven-16mb", _NETWORK,
)  # fmt: skip
_REAL = (("ladder-1mb", 256), ("ladder-4mb", 64), ("ladder-4mb", 256), ("cnn", 64))
"""Models that are computed, with their batch."""
_LAWS: tuple[dict[str, Any], ...] = (
    {"kind": "constant"},
    {"kind": "exponential"},
    {"kind": "gamma", "shape": 4.0},
    {"kind": "gamma", "shape": 16.0},
    {"kind": "lognormal", "sigma": 0.3},
)
_LOAD_PERCENT = (40, 70, 100, 140)
_COMPUTE_MS = (10, 2000)
_RUN_S = (10.0, 25.0, 40.0)
"""Least, wanted and most of a run by a guess."""
_STEPS = (12, 400)
_TRIES = 10_000

_Choice = TypeVar("_Choice")
_SEED = re.compile(r"random:(\d{1,18})", re.ASCII)


def matrix_named(name: str | Path = "quick", count: int | None = None) -> Matrix:
    """The matrix of a file, of a name in the catalogue, or drawn by ``random:SEED``.

    Parameters
    ----------
    name
        Of the matrix.
    count
        Settings that are drawn, :data:`DEFAULT_COUNT` if left out; only for ``random:SEED``.

    Raises
    ------
    InputError
        There is no such matrix, it breaks a rule, or ``count`` does not go with it.
    """
    text = str(name)
    if text == "random" or text.startswith("random:"):
        return random_matrix(_seed_of(text), DEFAULT_COUNT if count is None else count)
    if count is not None:
        raise InputError(f"`count`: needs drawn settings, such as `matrix='random:1'`; {text[:60]!r} has a fixed number")
    return read_matrix(catalog.find("matrices", text, "`matrix`"))


def _seed_of(name: str) -> int:
    """The seed in ``random:SEED``."""
    seed = _SEED.fullmatch(name)
    if seed is None:
        raise InputError(f"`matrix`: {name[:60]!r}: must have a seed, a whole number of at least 0 with up to 18 digits, such as random:1")
    return int(seed[1])


def random_matrix(seed: int, count: int) -> Matrix:
    """Draw a matrix.

    Parameters
    ----------
    seed
        From 0 on.
    count
        Settings that are held out, 1 to :data:`MOST`.

    Raises
    ------
    InputError
        Seed or count are out of their range.
    """
    matrix = matrix_of(random_table(seed, count), f"random:{seed}")
    return matrix.model_copy(update={"drawn_by": seed})


def random_text(seed: int, count: int) -> str:
    """The matrix as a file, which :func:`~calibrate.validation.matrix.read_matrix` takes."""
    head = f"# Drawn by `paceline validate --matrix random:{seed} --count {count}`\n"
    return head + tomlkit.dumps(random_table(seed, count))


def random_table(seed: int, count: int) -> dict[str, Any]:
    """The matrix as the table of its file: quantities are text with their unit."""
    if not 0 <= seed < 10**18:
        raise InputError(f"seed {seed}: must be at least 0, with up to 18 digits")
    if not 1 <= count <= MOST:
        raise InputError(f"`count={count}`: must be from 1 to {MOST} settings")
    table = read_toml(catalog.find("matrices", _FIT, "`matrix`"))
    fit: list[dict[str, Any]] = list(table["fit"])
    # settings of the fit are not drawn again, nor is one drawn twice
    taken = {setting.kind_of_run for setting in matrix_of(table, _FIT).settings}
    held_out = []
    for place in range(count):
        drawn, setting = _one(_Draw(seed, place), TURNS[place % len(TURNS)], taken)
        taken.add(setting.kind_of_run)
        held_out.append(drawn)
        fit += [alone for alone in _alone(drawn) if alone not in fit]
    whole = {**table, "name": f"random-{seed}-{count}", "seed": seed % 2**31}
    return {**whole, "fit": fit, "held_out": held_out}


class _Draw:
    """Choices of one setting, from a random stream of its own."""

    def __init__(self, seed: int, place: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(place,)))

    def of(self, choices: Sequence[_Choice]) -> _Choice:
        """One of them, all alike; what 32 bits cannot divide evenly is less than one in ten million."""
        return choices[(int(self._bits.random_raw()) >> 32) * len(choices) >> 32]


def _one(draw: _Draw, group: str, taken: set[str]) -> tuple[dict[str, Any], TestbedSetting]:
    """Draw until the rules are kept."""
    for _ in range(_TRIES):
        table = _real(draw) if group == CORES else _emulated(draw, group)
        if table is None:
            continue
        setting = _sized(table)
        step_s = guessed_step_s(setting)
        least_s, wanted_s, most_s = _RUN_S
        steps = min(max(int(wanted_s / step_s), _STEPS[0]), _STEPS[1])
        if not least_s <= steps * step_s <= most_s or setting.kind_of_run in taken:
            continue
        return {"group": group, **table, "steps": steps}, setting.model_copy(update={"steps": steps})
    raise AssertionError(f"the space has no further setting of {group!r}")


def _emulated(draw: _Draw, group: str) -> dict[str, Any] | None:
    """Draw all but the steps; None where the choices do not go together."""
    modes = {RING: ("ring",), LAYERS: ("async", "between-graph", "sync", "ring")}.get(group, ("async", "between-graph", "sync"))
    mode = draw.of(modes)
    workers = draw.of(_WORKERS if group == SERVERS else _FEW_WORKERS)
    servers = draw.of((1, 2, 3, 4))
    backup = draw.of((0, 1))
    model = draw.of(_MODELS)
    mbit_per_s = draw.of(_MBIT_PER_S)
    buffer_ms = draw.of(_BUFFER_MS)
    law = draw.of(_LAWS)
    load = draw.of(_LOAD_PERCENT)
    sizes = _sizes(model)
    bytes_per_s = mbit_per_s * 125_000
    table: dict[str, Any] = {"mode": mode, "workers": workers}
    if mode == "ring":
        own_s = busy_s = 2 * (workers - 1) / workers * math.fsum(sizes) / bytes_per_s
        within = workers * mbit_per_s <= _MOST_MBIT_PER_S[RING]
    else:
        table["servers"] = servers
        if mode == "sync" and backup and workers > 2:
            table["backup_workers"] = backup
        own_s = 2 * math.fsum(sizes) / bytes_per_s
        busy_s = workers * busiest_share(sizes, servers) * math.fsum(sizes) / bytes_per_s
        within = servers <= len(sizes) and min(servers, workers) * mbit_per_s <= _MOST_MBIT_PER_S[SERVERS]
    if not within:
        return None
    # a ring's bytes and compute take turns, so the link is in use for their share of the step
    wanted_s = busy_s * 100 / load - (0.0 if mode == "ring" else own_s)
    compute_ms = _two_digits(1000 * max(wanted_s, own_s / 2))
    if not _COMPUTE_MS[0] <= compute_ms <= _COMPUTE_MS[1]:
        return None
    link: dict[str, Any] = {"bandwidth": f"{mbit_per_s} Mbit/s", "buffer": f"{buffer_ms} ms"}
    if group == TCP:
        link["sharing"] = "tcp"
    table |= {"link": link, "model": model, "compute": {"mean": f"{compute_ms} ms", "law": law}}
    if group == LAYERS:
        table["overlap"] = True
    return table


def _real(draw: _Draw) -> dict[str, Any] | None:
    mode = draw.of(("async", "between-graph", "sync", "ring", "mirrored"))
    workers = draw.of(_REAL_WORKERS)
    servers = draw.of((1, 2))
    name, batch = draw.of(_REAL)
    mbit_per_s = draw.of((None, None, 400, 1000))
    model = name if synthetic_variables(name) is not None else f"{catalog.builder(name).absolute()}:build"
    table: dict[str, Any] = {"mode": mode, "workers": workers}
    if mode in ("async", "between-graph", "sync"):
        table["servers"] = servers
    if mbit_per_s is not None and mode != "mirrored":
        table["link"] = {"bandwidth": f"{mbit_per_s} Mbit/s"}
    return {**table, "model": model, "compute": {"kind": "real"}, "batch": batch}


def _alone(drawn: dict[str, Any]) -> list[dict[str, Any]]:
    """Settings that the fit needs for a drawn one: where compute is real, runs of its model with one worker and with two apart.

    Settings with mode "apart" show the cost of busy cores and the single step; they do not count where
    something else kept the machine busy, and the run with one worker is there for that.
    """
    if drawn["compute"].get("kind") != "real":
        return []
    alone = {"mode": "mirrored", "workers": 1} if drawn["mode"] == "mirrored" else {"mode": "between-graph", "workers": 1, "servers": 1}
    model = {"model": drawn["model"], "compute": {"kind": "real"}, "batch": drawn["batch"], "steps": 100}
    return [{**alone, **model}, {"mode": "apart", "workers": 2, **model}]


def _sized(table: dict[str, Any]) -> TestbedSetting:
    """The setting; a model whose variables are known only when it has been built has some of the same sizes."""
    variables = {} if synthetic_variables(table["model"]) is not None else {"variables": _of_network()}
    return TestbedSetting.model_validate({**table, **variables, "steps": _STEPS[0]})


@functools.cache
def _sizes(model: str) -> tuple[float, ...]:
    """Bytes of each variable, in the order of creation."""
    known = synthetic_variables(model)
    return tuple(TestbedVariable.model_validate(variable).size_bytes for variable in (_of_network() if known is None else known))


@functools.cache
def _of_network() -> list[dict[str, Any]]:
    """Variables of the convolutional network, as the catalogue's workload has them."""
    variables: list[dict[str, Any]] = of_workload(_NETWORK, None, "`matrix`")["variables"]
    return variables


def _two_digits(value: float) -> int:
    """A whole number of milliseconds with two digits that count."""
    whole, scale = int(value + 0.5), 1
    while whole // scale >= 100:
        scale *= 10
    return (whole + scale // 2) // scale * scale
