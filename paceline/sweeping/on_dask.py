"""The workers of a Dask cluster that is there already: its address, the connection, and what is said when it is lost.

What all backends share is in backends.py.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from paceline.sweeping.backends import KILLED, Workers, check_answers, check_versions
from simulator.base.errors import InputError

_CONNECT_S = 10
_WORKER_S = 10
_LOGGERS = "distributed", "distributed.client", "tornado.application"
_LOST = "the Dask cluster was lost", "run again when it is back"
_ADDRESS = re.compile(r"(tcp|tls)://\S+:\d{1,5}")


def check_dask_address(scheduler: str | None) -> None:
    """Raise InputError unless this is the address of a Dask scheduler."""
    if scheduler is None or not _ADDRESS.fullmatch(scheduler):
        shown = "is left out" if scheduler is None else f"{scheduler[:80]!r}"
        raise InputError(f"`scheduler` {shown}: `backend='dask'` needs the address of its scheduler, such as tcp://127.0.0.1:8786")


@contextmanager
def dask_workers(jobs: int, scheduler: str) -> Iterator[Workers]:
    """The workers of a Dask cluster.

    Parameters
    ----------
    jobs
        Tasks at a time; 0 for as many as its workers have threads.
    scheduler
        Its address, such as ``tcp://10.0.0.5:8786``.

    Raises
    ------
    InputError
        The extra is not installed, nothing answers there, the cluster has no worker, or one
        of another version.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise InputError("`backend='dask'`: needs Dask; install it with: pip install 'paceline[dask]'") from None
    from joblib import Parallel, parallel_config

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is reported in one line, below
    where, hint = f"`scheduler` {scheduler!r}", "start one with: dask scheduler"
    check_answers(scheduler, where, hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on versions: those that matter are compared
            client = distributed.Client(scheduler, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: no Dask scheduler answers there ({_first_line(error)}); {hint}") from None
    with client, ExitStack() as stack:
        with parallel_config(backend="dask", client=client, wait_for_workers_timeout=_WORKER_S):
            parallel = Parallel(return_as="generator", batch_size=1, pre_dispatch=jobs or "2*n_jobs")
        try:
            stack.enter_context(parallel)
        except TimeoutError:
            raise InputError(f"{where}: this Dask cluster has no worker; start some with: dask worker {scheduler}") from None
        lost = {distributed.KilledWorker: KILLED, CancelledError: _LOST, OSError: _LOST}
        workers = Workers(parallel, jobs or sum(client.ncores().values()), lost=lost, cluster=where)
        check_versions(workers, where)
        yield workers


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
