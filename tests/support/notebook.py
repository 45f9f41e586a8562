"""What answers show in a notebook, taken apart."""

from __future__ import annotations

from html.parser import HTMLParser


class Cells(HTMLParser):
    """The tags of a piece of HTML, and the texts of its table's cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert all(name == "colspan" for name, _ in attrs)
        if tag in ("td", "th", "caption"):
            self.cells.append("")

    def handle_data(self, data):
        self.cells[-1] += data
