"""A folder that nobody but the user can have written to, so that what is kept there may be loaded as machine code.

Whoever can write there can run anything. As
OpenSSH asks of the way to a user's keys, no directory on the way, from the root down, may let
others change what lies in it. Directories are looked at from above: where nobody can replace
what is in one, the next one below is what it was when it was looked at, so that
a path can be trusted. A sticky directory, such as ``/tmp``, lets nobody replace what is another's.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_ROOT = 0


class NotPrivateError(Exception):
    """Others can write to a folder; the text says to which one and what to do, as the middle of a sentence."""


def private_folder(base: Path, *names: str) -> Path:
    """A folder below a base, made where there is none; without links, as nobody can change it any more.

    Parameters
    ----------
    base
        The user's folder for such things; made, too, where there is none.
    names
        Of the folders below it, the next within the one before.

    Raises
    ------
    NotPrivateError
        Others can write to it, or replace it or what it lies in.
    OSError
        It cannot be made.
    """
    folder = Path(os.path.realpath(base))
    for each in (*reversed(folder.parents), folder):
        _make(each)
        _check(each, own=False)
    for name in names:
        folder /= name
        _make(folder)
        _check(folder, own=True)
        folder.chmod(0o700)  # one that a umask of 002 has made must not be open to who joins the group
    return folder


def is_private(path: Path) -> bool:
    """Whether a file or folder, in one that is private, is neither a link nor another's, and nobody else may write to it."""
    found = path.lstat()
    kind = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return not _has_users() or (kind and found.st_uid == os.geteuid() and not _open_to_others(found))


def _make(folder: Path) -> None:
    if not os.path.lexists(folder):
        folder.mkdir(mode=0o700, exist_ok=True)  # another process may have been quicker


def _check(folder: Path, *, own: bool) -> None:
    """Raise NotPrivateError where a directory lets others change what is in it.

    Parameters
    ----------
    folder
        What is looked at.
    own
        Whether it is the user's alone; else root may have made it, and it may be a sticky one.
    """
    if not _has_users():
        return
    found = folder.lstat()
    elsewhere = "set XDG_CACHE_HOME to a folder of your own"
    if stat.S_ISLNK(found.st_mode):
        raise NotPrivateError(f"{folder} is a link; remove it, or {elsewhere}")
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if found.st_uid != os.geteuid() and (own or found.st_uid not in (_ROOT, Path("/").stat().st_uid)):
        raise NotPrivateError(f"{folder} belongs to another user (uid {found.st_uid}, and this is {os.geteuid()}); {elsewhere}")
    if _open_to_others(found) and (own or not found.st_mode & stat.S_ISVTX):
        raise NotPrivateError(f"other users may write to {folder}; {'remove it' if own else '`chmod go-w` it'}, or {elsewhere}")


def _open_to_others(found: os.stat_result) -> bool:
    """Whether its mode lets others write. A umask of 002 lets the user's own group, which has no other members, do so."""
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid)
    except KeyError:
        return True
    return user != group.gr_name or not {user}.issuperset(group.gr_mem)


def _has_users() -> bool:
    """Whether files have an owner and a mode: on Windows the user's profile is closed to others by other means."""
    return hasattr(os, "geteuid")
