"""The figures of a report as image files, drawn by the very page in a headless browser.

It finds figures by the ids ``figure-NAME`` that the templates give their elements, and waits until plotly has drawn them.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import unquote

from paceline.reporting.render import environment, figure_names
from simulator.base.errors import InputError, PacelineError
from simulator.base.files import Output, check_folder, marked_kind

if TYPE_CHECKING:
    from selenium import webdriver

Format = Literal["png", "svg"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""What figures can be written as: pixels, twice as many as on the page in each direction, or lines."""

_MARK = b"drawn by Paceline"
_IMAGE_KIND = marked_kind("figure", _MARK, "")
_PNG_HEAD_BYTES = 33
"""Of a PNG file's signature and its first chunk, which no other comes before."""
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_DRIVERS = ("chromedriver", "chromium-driver")
_WIDTH_PX, _HEIGHT_PX = 1440, 1200
_PATIENCE_S = 120
_PNG_SCALE = 2

# every element that is to hold a figure, and whether it does; those that the page does not show are none
_FIGURES = """
return Array.from(document.querySelectorAll('[id^="figure-"]'))
  .filter(function (element) { return element.getClientRects().length > 0; })
  .map(function (element) { return [element.id, element.classList.contains('js-plotly-plot')]; });
"""


def check_browser() -> tuple[str, str]:
    """Where the browser and its driver are.

    Raises
    ------
    InputError
        One of them, or selenium, is not installed; says what to install.
    """
    if find_spec("selenium") is None:
        raise InputError("`figures`: needs selenium, which is not installed; install it with: pip install 'paceline[figures]'")
    browser, driver = (next((path for name in names if (path := shutil.which(name))), None) for names in (_BROWSERS, _DRIVERS))
    if browser is None or driver is None:
        missing = "Chromium" if browser is None else "Chromium's driver"
        raise InputError(
            f"`figures`: needs {missing}, which is not on the PATH; install both with: apt-get install chromium chromium-driver"
        )
    return browser, driver


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
        A report that :func:`paceline.reporting.write_report` wrote.
    folder
        Where to write; made if it is not there; figures of the same names are replaced.
    formats
        One file a figure and format.
    progress
        Called with figures done and in all.
    force
        Replace files of these names whatever they are.

    Returns
    -------
    tuple of Path
        The files, in the order of the page.

    Raises
    ------
    InputError
        Browser or selenium are missing, or the folder cannot be written to, or something else has the name of a figure.
    PacelineError
        The browser failed.
    """
    check_browser()
    check_folder(folder, "figures")
    written: list[Path] = []
    script = environment().get_template("image.js").render()
    with headless() as driver:
        names = open_page(driver, page)
        outputs = {
            (name, kind): _output(folder, f"{name.removeprefix('figure-')}.{kind}", force=force) for name in names for kind in formats
        }
        for number, name in enumerate(names, 1):
            for kind in formats:
                image = driver.execute_async_script(script, name, kind, _PNG_SCALE if kind == "png" else 1)
                if "error" in image:
                    raise PacelineError(f"{name} could not be drawn as {kind}: {image['error'][:200]}")
                written.append(outputs[name, kind].write(_marked(_content(image["url"]), kind)))
            if progress is not None:
                progress(number, len(names))
    return tuple(written)


@contextmanager
def headless() -> Iterator[webdriver.Chrome]:
    """A browser without a window, of 1,440 pixels' width, that prefers light colours; closed in the end.

    Raises
    ------
    InputError
        Browser or selenium are missing.
    PacelineError
        The browser fails, to start or later.
    """
    browser, chromedriver = check_browser()
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={_WIDTH_PX},{_HEIGHT_PX}")
    if os.geteuid() == 0:  # Chromium has no sandbox for root
        options.add_argument("--no-sandbox")
    driver: webdriver.Chrome | None = None
    try:
        driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        driver.set_script_timeout(_PATIENCE_S)
        light = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", light)
        yield driver
    except WebDriverException as error:
        reason = " ".join((error.msg or type(error).__name__).split())[:200]
        raise PacelineError(f"the browser {browser} failed: {reason}") from None
    finally:
        if driver is not None:
            driver.quit()


def open_page(driver: webdriver.Chrome, page: Path) -> list[str]:
    """Load a report and wait until all of its figures are drawn; the ids of their elements, in the order of the page."""
    from selenium.webdriver.support.ui import WebDriverWait

    driver.get(page.resolve().as_uri())
    waiting = WebDriverWait(driver, _PATIENCE_S, poll_frequency=0.1)
    waiting.until(lambda _: driver.execute_script("return document.documentElement.dataset.drawn === 'yes'"))
    # what is folded is drawn when it is opened
    driver.execute_script("document.querySelectorAll('details.folded').forEach(section => { section.open = true; })")
    waiting.until(lambda _: all(drawn for _, drawn in driver.execute_script(_FIGURES)))
    return [name for name, _ in driver.execute_script(_FIGURES)]


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
