"""Write the figures of a report as image files: a headless browser opens the very page and says what it drew.

Any Chromium or Chrome will do; it needs no driver and no other package. A copy of the page gets one more script (image.js), which leaves
all images as JSON in the document that ``--dump-dom`` prints. Figures are the elements with ids ``figure-NAME``.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote

from paceline.reporting.render import environment, figure_names
from simulator.base.errors import InputError, PacelineError
from simulator.base.files import Output, check_folder, marked_kind

Format = Literal["png", "svg"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""What figures can be written as: pixels, twice as many as on the page in each direction, or lines."""

_MARK = b"drawn by Paceline"
_IMAGE_KIND = marked_kind("figure", _MARK, "")
_PNG_HEAD_BYTES = 33
"""Of a PNG file's signature and its first chunk, which no other comes before."""
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_WIDTH_PX, _HEIGHT_PX = 1440, 1200
_PATIENCE_S = 300.0
_VIRTUAL_MS = 120_000
_IMAGES = re.compile(r'<script id="images"[^>]*>(.*?)</script>', re.DOTALL)


def find_browser() -> str:
    """Return the path of Chromium or Chrome: what ``CHROME_PATH`` names, else the first on the ``PATH``.

    Raises
    ------
    InputError
        There is none; says what to install.
    """
    named = os.environ.get("CHROME_PATH")
    for name in (named,) if named else _BROWSERS:
        if path := shutil.which(name):
            return path
    if named:
        raise InputError(f"`figures`: CHROME_PATH names {named!r}, which is no program; set it to the path of Chromium or Chrome")
    raise InputError(
        "`figures`: needs Chromium or Chrome, which is not on the PATH; install it with: apt-get install chromium, or set CHROME_PATH"
    )


def check_images(folder: Path, formats: Sequence[Format] = FORMATS, *, force: bool = False) -> None:
    """Make sure, before a report is made, that its figures replace no image of anybody else's.

    Raises
    ------
    InputError
        One would, or the folder cannot be written to.
    """
    check_folder(folder, "figures")
    names = "|".join(f"{re.escape(name)}[0-9]*" if name.endswith("-") else re.escape(name) for name in figure_names())
    image = re.compile(rf"({names})\.({'|'.join(formats)})")
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if image.fullmatch(file.name):
            _output(folder, file.name, force=force)


def _output(folder: Path, name: str, *, force: bool) -> Output:
    return Output(folder / name, _IMAGE_KIND, force=force, argument="figures")


def export_figures(
    page: Path,
    folder: Path,
    formats: Sequence[Format] = FORMATS,
    progress: Callable[[int, int], None] | None = None,
    *,
    force: bool = False,
) -> tuple[Path, ...]:
    """Write every figure that a report shows as an image file, named as in the page, in light colours.

    Parameters
    ----------
    page
        A report that :func:`paceline.report` wrote.
    folder
        Where to write; made if it is not there; figures of the same names are replaced.
    formats
        One file a figure and format.
    progress
        Called with images done and in all.
    force
        Replace files of these names whatever they are.

    Returns
    -------
    tuple of Path
        The files, in the order of the page.

    Raises
    ------
    InputError
        There is no browser, or the folder cannot be written to, or something else has the name of a figure.
    PacelineError
        The browser failed.
    """
    browser = find_browser()
    check_folder(folder, "figures")
    images = _drawn(browser, page, formats)
    outputs = [_output(folder, f"{image['id'].removeprefix('figure-')}.{image['kind']}", force=force) for image in images]
    written: list[Path] = []
    for image, output in zip(images, outputs, strict=True):
        if "error" in image:
            raise PacelineError(f"{image['id']} could not be drawn as {image['kind']}: {image['error'][:200]}")
        written.append(output.write(_marked(_content(image["url"]), image["kind"])))
        if progress is not None:
            progress(len(written), len(images))
    return tuple(written)


def _drawn(browser: str, page: Path, formats: Sequence[Format]) -> list[dict[str, Any]]:
    """Return the images that a browser makes of a page's figures, each with its ``id``, ``kind``, and ``url`` or ``error``.

    Raises
    ------
    PacelineError
        The browser does not start, or takes too long, or the page is no report.
    """
    script = environment().get_template("image.js").render(formats=list(formats))
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(f"{page.read_text(encoding='utf-8')}<script>{script}</script>", encoding="utf-8")
        # in virtual time the browser waits for timers and drawing, and for nothing else
        command = [
            browser, "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking",
            "--no-first-run", f"--user-data-dir={folder}/profile", f"--window-size={_WIDTH_PX},{_HEIGHT_PX}",
            "--blink-settings=preferredColorScheme=1", f"--virtual-time-budget={_VIRTUAL_MS}",
            *(("--no-sandbox",) if os.geteuid() == 0 else ()),  # Chromium has no sandbox for root
            "--dump-dom", copy.as_uri(),
        ]  # fmt: skip
        try:
            done = subprocess.run(  # noqa: S603 - the user's own browser
                command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=_PATIENCE_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = f"it took longer than {_PATIENCE_S:g} s" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
            raise PacelineError(f"the browser {browser} failed: {reason}") from None
    if done.returncode != 0 or (said := _IMAGES.search(done.stdout)) is None:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")[:200]
        why = f"exit code {done.returncode}: {last}" if done.returncode else f"{page} drew no figures"
        raise PacelineError(f"the browser {browser} failed: {why}")
    images: list[dict[str, Any]] = json.loads(said[1])
    return images


def _content(url: str) -> bytes:
    """The bytes of a data URL."""
    head, _, body = url.partition(",")
    return base64.b64decode(body) if head.endswith(";base64") else unquote(body).encode()


def _marked(image: bytes, kind: Format) -> bytes:
    """The image with what tells it from images of others: a comment, in PNG a text chunk (PNG specification, section 11.3.4)."""
    if kind == "svg":
        return b"<!-- " + _MARK + b" -->\n" + image
    chunk = b"tEXtSoftware\0" + _MARK
    text = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return image[:_PNG_HEAD_BYTES] + text + image[_PNG_HEAD_BYTES:]
