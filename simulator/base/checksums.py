"""A checksum as the last key of an object of JSON, by which what was damaged or changed after it was written is found.

``_with_checksum`` in calibrate/probes/recorder.py makes the same without importing this: change both together.
"""

from __future__ import annotations

import hashlib

KEY = "checksum"
CHANGED = f"does not match its {KEY} (damaged or edited)"
"""What is wrong with what :func:`checksum_holds` is False of."""

_KEY = f'"{KEY}"'.encode()


def with_checksum(text: str) -> str:
    """An object of JSON with the checksum of all that stands before it as its last key.

    >>> with_checksum('{"a":1}')
    '{"a":1,"checksum":"8b0f0d75aabe01bb"}'
    """
    before = text.removesuffix("}")
    return before + _ending(before.encode()).decode()


def without_checksum(text: bytes) -> bytes:
    """An object of JSON as :func:`with_checksum` was given it."""
    before, found, _ = text.rpartition(b"," + _KEY)
    return before + b"}" if found else text


def checksum_holds(text: bytes) -> bool | None:
    """Whether an object of JSON is as :func:`with_checksum` made it; None where it has no checksum.

    >>> [checksum_holds(text) for text in (b'{"a":1,"checksum":"8b0f0d75aabe01bb"}', b'{"a":2,"checksum":"8b0f0d75aabe01bb"}', b'{"a":1}')]
    [True, False, None]
    """
    before, found, rest = text.rstrip(b" \t\r\n").rpartition(_KEY)  # in a string its quotation marks have backslashes before them
    if not found or not rest.lstrip().startswith(b":"):
        return None
    return before.endswith(b",") and _KEY + rest == _ending(before[:-1])[1:]


def _ending(before: bytes) -> bytes:
    return b"," + _KEY + b':"' + hashlib.sha256(before).hexdigest()[:16].encode() + b'"}'
