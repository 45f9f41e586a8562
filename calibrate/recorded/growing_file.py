"""Files that grow while a training writes them: their new bytes, and their new lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from simulator.base.errors import InputError
from simulator.base.text import no_such_file

_MOST_BYTES = 2 * 2**30
"""Of one file."""
_AT_ONCE = 2**24
_LONGEST_LINE = 2**20


class GrowingFile:
    """A file whose new bytes are read where the last reading ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place = 0

    def read(self, most: int = _AT_ONCE) -> bytes:
        """The next bytes, at most as many as this; b"" where nothing is new.

        Raises
        ------
        InputError
            The file is not there, cannot be read, is too large, or is shorter than before.
        """
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if size > _MOST_BYTES:
                    raise InputError(f"{self.path}: is larger than {_MOST_BYTES // 2**30} GiB: give a part of it")
                if size < self._place:
                    raise InputError(f"{self.path}: became shorter while it was read: start again")
                file.seek(self._place)
                content = file.read(most)
        except FileNotFoundError:
            raise InputError(f"{self.path}: {no_such_file(self.path)}") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"{self.path}: cannot be read: {reason or type(error).__name__}") from None
        self._place += len(content)
        return content


class Lines(GrowingFile):
    """The lines of a growing file, each once, when it is whole.

    Parameters
    ----------
    path
        The file.
    returns
        Whether a carriage return or backspaces end a line too, as when a progress bar is redrawn.

    Attributes
    ----------
    count
        Lines until now, which is the number of the last one.
    """

    def __init__(self, path: Path, *, returns: bool = False) -> None:
        super().__init__(path)
        self._ends = re.compile(rb"\r\n|\n|\r|\x08+" if returns else rb"\r?\n")
        self._rest = b""
        self.count = 0

    def new(self) -> Iterator[tuple[int, str]]:
        """Number and text of each new line.

        Raises
        ------
        InputError
            As of :meth:`read`; or a line is too long, or no text in UTF-8.
        """
        while content := self.read():
            *whole, self._rest = self._ends.split(self._rest + content)
            for line in whole:
                self.count += 1
                try:
                    yield self.count, line.decode("utf-8-sig" if self.count == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(f"{self.path}:{self.count}: is not UTF-8 text (byte {error.start})") from None
            if len(self._rest) > _LONGEST_LINE:
                raise InputError(f"{self.path}:{self.count + 1}: is longer than {_LONGEST_LINE // 2**20} MiB; is this a file of lines?")
