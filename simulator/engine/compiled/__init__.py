"""The compiled engine: the kernel, the network and the cores of the SimPy engine again, in tables and machine code.

Each module here stands beside the one that it follows, with the same names: ``calendar``
beside ``simulator.kernel``; ``ports``, ``fairness``, ``flows``, ``admission`` and
``queues`` beside those of ``simulator.network``; ``cores`` beside ``simulator.cores``.
What happens, in which order, and every rounding are the same; where the reference has an
ordered dictionary, there is a linked list here. Programs are run by ``interpreter``,
``rank``, ``server``, ``device``, ``overlap``, ``rules``, ``updates`` and ``collectives``,
beside those of ``simulator.engine.simpy``; ``engine`` does what needs Python. Only this
package imports numba.
"""

from __future__ import annotations

__all__ = ["available", "is_made", "load"]


def available() -> str | None:
    """Why this engine cannot run here, as the middle of a sentence; None if it can.

    Raises
    ------
    Exception
        Whatever a numba that is missing or broken fails with.
    """
    from simulator.engine.compiled.machine import obstacle  # which loads numba

    return obstacle()


def is_made() -> bool:
    """Whether the machine code is there already, from another time."""
    from simulator.engine.compiled.machine import is_kept

    return is_kept()


def load(*, wait: bool) -> bool:
    """Load the machine code; make it first, once, where there is none, and say so.

    Parameters
    ----------
    wait
        What to do while another process makes it: wait for it, or leave it.

    Returns
    -------
    bool
        Whether it is loaded.
    """
    from simulator.engine.compiled.machine import making

    with making(wait=wait) as mine:
        if not mine:
            return False
        from simulator.engine.compiled.warming import run_nothing

        run_nothing()
    return True
