"""What docs/adding-a-strategy.md shows is a strategy of the repository, word for word."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-strategy.md").read_text()
FILE = ROOT / "simulator" / "strategies" / "gossip.py"


def test_every_excerpt_stands_in_the_file():
    excerpts = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(excerpts) >= 4
    text = FILE.read_text()
    for excerpt in excerpts:
        assert excerpt in text, f"docs/adding-a-strategy.md shows what {FILE.name} does not have:\n{excerpt}"
