"""The workers of a Dask or Ray cluster: its address, the connection, and the messages when it is lost.

backends.py has the parts that all backends share.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import Any

from paceline.sweeping.backends import KILLED, Workers, check_answers, check_versions, deaf_to, environment
from simulator.base.errors import InputError
from simulator.base.process import scratch

_CONNECT_S = 10
_WORKER_S = 10
_LOGGERS = "distributed", "distributed.client", "tornado.application"
_DASK_ADDRESS = re.compile(r"(tcp|tls)://\S+:\d{1,5}")
_OWN = "local"
_RAY_ADDRESS = re.compile(r"auto|local|(ray://)?[^\s:/]+:\d{1,5}")
_UNLIKE = re.compile(r"Version mismatch.*?Ray: (\S+)\s+Python: (\S+).*?Ray: (\S+)\s+Python: (\S+)", re.DOTALL)
_STORE_BYTES = 100 * 2**20
_MOST_OF_PATH = 25
"""Longest folder for Ray's own cluster, because paths of sockets have at most 107 characters."""


def _lost(kind: str) -> tuple[str, str]:
    """Return a sentence on a lost cluster, and advice."""
    return f"the {kind} cluster was lost", "run again when it is back"


def _first_words(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0][:200]


def check_dask_address(scheduler: str | None) -> None:
    """Raise InputError unless this is the address of a Dask scheduler."""
    if scheduler is None or not _DASK_ADDRESS.fullmatch(scheduler):
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
        Nothing answers there, the cluster has no worker, or one of another version.
    """
    distributed: Any = import_module("distributed")
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is reported in one line, below
    where, hint = f"`scheduler` {scheduler!r}", "start one with: dask scheduler"
    check_answers(scheduler, where, hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on versions: those that matter are compared
            client = distributed.Client(scheduler, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: no Dask scheduler answers there ({_first_words(error)}); {hint}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKER_S)
        except TimeoutError:
            raise InputError(f"{where}: this Dask cluster has no worker; start some with: dask worker {scheduler}") from None
        executor = client.get_executor(pure=False)
        lost_it = _lost("Dask")
        lost = {distributed.KilledWorker: KILLED, CancelledError: lost_it, OSError: lost_it}
        workers = Workers(executor.submit, jobs or sum(client.ncores().values()), ahead=jobs, lost=lost, cluster=where)
        check_versions(workers, where)
        yield workers


def check_ray_address(scheduler: str | None) -> None:
    """Raise InputError unless this is the address of a Ray cluster, or None."""
    if scheduler is not None and not _RAY_ADDRESS.fullmatch(scheduler):
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
        this machine. Left out: what ``RAY_RAY_ADDRESS`` says; without it, or with ``local``, one
        is started here and shut down again.

    Raises
    ------
    InputError
        Nothing answers there, or a worker has another version.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anyone unless the user wants it
    ray: Any = import_module("ray")
    address = scheduler or os.environ.get("RAY_RAY_ADDRESS") or _OWN
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # what goes wrong is reported in one line, below
    where = f"`scheduler` {address!r}"
    hint = "start one with: ray start --head (if it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN)"
    if ":" in address:
        check_answers(address, where, hint)
    with ExitStack() as stack:
        if not ray.is_initialized():
            own: dict[str, Any] = {}
            named: dict[str, str] = {}
            if address == _OWN:
                # else what it keeps there would stay, and where this process is killed, some of Ray's for a minute
                own["_temp_dir"] = str(stack.enter_context(scratch(within=_short_folder())))
                named["RAY_TMPDIR"] = own["_temp_dir"]
                own.update(num_cpus=jobs or None, object_store_memory=_STORE_BYTES, include_dashboard=False)
            stack.callback(_shut_down, ray)
            try:
                # a scheduler's SIGTERM is for all; without them Ray waits a minute, and ends this process in its own way
                with deaf_to(signal.SIGINT, signal.SIGTERM, signal.SIGHUP), _silent_stderr(), environment(**named):
                    ray.init(address, log_to_driver=False, configure_logging=False, **own)
            except SystemExit:  # of Ray's own handler of SIGTERM, while it starts: the handler that was there before is there again
                signal.raise_signal(signal.SIGTERM)
                raise
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise InputError(f"{where}: {_unlike(error) or f'no Ray cluster answers there ({_first_words(error)}); {hint}'}") from None
        cores = int(ray.cluster_resources().get("CPU", 0))
        if not cores:
            raise InputError(f"{where}: this Ray cluster has no free CPU; start a node with: ray start --address {address}")
        count = min(jobs or cores, cores)

        task = cache(ray.remote(max_retries=0))

        def submit(function: Callable[..., Any], *given: Any) -> Future[Any]:
            future: Future[Any] = task(function).remote(*given).future()
            return future

        lost_it, exceptions = _lost("Ray"), ray.exceptions
        lost = {
            exceptions.RayTaskError: None,
            exceptions.WorkerCrashedError: KILLED,
            exceptions.RayError: lost_it,
            ConnectionError: lost_it,
        }
        workers = Workers(submit, count, ahead=count, lost=lost, cluster=where)
        check_versions(workers, where)
        yield workers


def _unlike(error: Exception) -> str:
    """Return a sentence on incompatible versions of Ray; empty for another error."""
    mismatch = _UNLIKE.search(str(error))
    if mismatch is None:
        return ""
    there, here = (f"Ray {ray} on Python {python}" for ray, python in (mismatch.groups()[:2], mismatch.groups()[2:]))
    return f"this cluster runs {there}, but this machine has {here}, which are incompatible; install the same versions there"


def _shut_down(ray: Any) -> None:
    """Disconnect from a cluster, and end it if this process started it."""
    with suppress(AttributeError):  # there is none, or another Ray keeps them elsewhere
        for kind in ray._private.worker._global_node.all_processes.values():
            for started in kind:  # it would wait a second for each to take a SIGTERM, to which they are deaf
                started.process.terminate = started.process.kill
    ray.shutdown()


def _short_folder() -> str:
    """Return the folder of Ray's temporary files: Ray's choice, unless the path is too long for sockets."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= _MOST_OF_PATH else "/tmp"  # noqa: S108 - a folder of its own is made there


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence stderr, including Ray's threads outside Python, which report every attempt to connect."""
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
