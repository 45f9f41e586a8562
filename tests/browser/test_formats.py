"""The page's script writes every kind of value as the library does."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

from support.pages import Page

import paceline.reporting
from simulator.base.text import FORMATS, NONE, formats_data, written

FORMAT_JS = Path(paceline.reporting.__file__).parent / "templates" / "format.js"
TIES = (
    0.0,
    0.5,
    1.5,
    2.5,
    0.125,
    0.375,
    999.5,
    0.9995,
    0.99949,
    1023.5,
    1024.0,
    12.5e-3,
    0.00049,
    0.001,
    0.0999,
    0.0995,
    999.999,
    1e15,
    1e-4,
    9.9996e-5,
)


def test_the_script_writes_what_the_library_writes(page: Page) -> None:
    rng = Random(7)
    values = [
        *TIES,
        *(math.exp(rng.uniform(math.log(1e-13), math.log(1e17))) for _ in range(400)),
        *(rng.uniform(0, 2) for _ in range(100)),
    ]
    values += [-value for value in values] + [float(whole) for whole in range(0, 3000, 37)]
    page.driver.get("about:blank")
    script = f"const data = {json.dumps({'formats': formats_data(), 'none': NONE})}; {FORMAT_JS.read_text()}"
    for kind in FORMATS:
        shown = page.run(f"{script} return {json.dumps(values)}.map((value) => written(value, {json.dumps(kind)}));")
        assert dict(zip(values, shown, strict=True)) == {value: written(value, kind) for value in values}, kind
    assert page.run(f"{script} return [null, undefined, 'text'].map((value) => written(value, 'seconds'));") == [NONE, NONE, "text"]
