"""What docs/adding-a-strategy.md shows is a strategy of the repository, word for word, and nothing else knows its name."""

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


def test_nothing_but_its_file_and_the_catalogue_knows_a_strategy():
    sources = [path for room in ("simulator", "calibrate", "paceline") for path in (ROOT / room).rglob("*.py")]
    knowing = {path.relative_to(ROOT).as_posix() for path in sources if re.search(r"gossip", path.read_text(), re.IGNORECASE)}
    assert knowing == {"simulator/strategies/gossip.py", "simulator/strategies/catalogue.py"}
