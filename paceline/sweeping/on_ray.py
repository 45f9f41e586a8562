"""Scenarios on a Ray cluster: one that is there already, or one started for them on this machine."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from paceline.sweeping.backends import KILLED, Workers, check_answers, check_versions, deaf_to
from simulator.errors import InputError

__all__ = ["check_ray_address", "ray_workers"]

_OWN = "local"
_ADDRESS = re.compile(r"auto|local|(ray://)?[^\s:/]+:\d{1,5}")
_LOST = "the Ray cluster was lost", "run again when it is back"
_STORE_BYTES = 100 * 2**20


def check_ray_address(scheduler: str | None) -> None:
    """Raise InputError unless this is the address of a Ray cluster, or left out."""
    if scheduler is not None and not _ADDRESS.fullmatch(scheduler):
        raise InputError(f"`scheduler` {scheduler[:80]!r}: must be host:port, ray://host:port or auto, as `backend='ray'` needs it")


@contextmanager
def ray_workers(jobs: int, scheduler: str | None) -> Iterator[Workers]:
    """The workers of a Ray cluster.

    Parameters
    ----------
    jobs
        Tasks at a time; 0 for as many as it has CPUs.
    scheduler
        Its address: ``host:port``, ``ray://host:port``, or ``auto`` for the one that runs on
        this machine. Left out: what ``RAY_ADDRESS`` says; without it, or with ``local``, one
        is started here and shut down again.

    Raises
    ------
    InputError
        The extra is not installed, nothing answers there, or a worker has another version.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anyone unless the user wants it
    try:
        ray: Any = import_module("ray")
        import_module("ray.util.joblib").register_ray()
    except ImportError:
        raise InputError("`backend='ray'`: needs Ray; install it with: pip install 'paceline[ray]'") from None
    from joblib import Parallel, parallel_config

    address = scheduler or os.environ.get("RAY_ADDRESS") or _OWN
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # what goes wrong is reported in one line, below
    where = f"`scheduler` {address!r}"
    hint = "start one with: ray start --head (if it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN)"
    if ":" in address:
        check_answers(address, where, hint)
    with ExitStack() as stack:
        if not ray.is_initialized():
            own: dict[str, Any] = {"num_cpus": jobs or None, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
            try:
                with deaf_to(signal.SIGINT), _silent_stderr():
                    ray.init(address, log_to_driver=False, configure_logging=False, **(own if address == _OWN else {}))
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = (str(error) or type(error).__name__).splitlines()[0].partition(". ")[0][:200]
                raise InputError(f"{where}: no Ray cluster answers there ({reason}); {hint}") from None
            stack.callback(ray.shutdown)
        cores = int(ray.cluster_resources().get("CPU", 0))
        if not cores:
            raise InputError(f"{where}: this Ray cluster has no CPU to give; start a node with: ray start --address {address}")
        count = min(jobs or cores, cores)
        with parallel_config(backend="ray"):
            parallel = Parallel(n_jobs=count, batch_size=1, pre_dispatch="all")
        stack.enter_context(parallel)
        lost = {ray.exceptions.RayActorError: KILLED, ray.exceptions.RayError: _LOST, ConnectionError: _LOST}
        workers = Workers(parallel, count, streaming=False, lost=lost)
        check_versions(workers, where)
        yield workers


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Nothing reaches stderr, not even from Ray's threads outside Python, which tell of every attempt to connect."""
    sys.stderr.flush()
    before = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(nowhere)
        os.close(before)
