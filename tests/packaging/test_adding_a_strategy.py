"""What pages show of the code stands there, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {"adding-a-strategy.md": "simulator/strategies/gossip.py", "textbook.md": "simulator/engine/textbook/*.py"}


@pytest.mark.parametrize("page", FILES)
def test_every_excerpt_stands_in_a_file(page: str) -> None:
    excerpts = re.findall(r"^ *```python\n(.*?)^ *```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(excerpts) >= 4
    texts = [path.read_text() for path in ROOT.glob(FILES[page])]
    for excerpt in excerpts:
        assert any(excerpt in text for text in texts), f"docs/{page} shows what {FILES[page]} does not have:\n{excerpt}"
