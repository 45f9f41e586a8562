"""Pages stay plain Markdown that reads well where they lie; what a site needs besides is worked out here.

- The table of contents follows the lists of links in ``index.md``, a part for each heading.
- A link whose text is the name of a page's file has the page's title as its text.
- A link to a source file, or to whatever lies outside ``docs/``, becomes its path: the site has no such page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)#]+)\.md\)", re.MULTILINE)
_FILE = re.compile(r"`?(?:docs/)?[\w-]+\.md`?")
_LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def contents(index: str) -> str:
    """The directives that make the table of contents of an index: for each heading the pages that its list names."""
    _, *parts = _HEADING.split(index)
    found = []
    for caption, text in zip(parts[::2], parts[1::2], strict=True):
        if pages := _ENTRY.findall(text):
            found.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]))
    return "\n" + "\n".join(found)


def with_links_of_a_site(text: str, page: Path, docs: Path) -> str:
    """The text of a page, with links as a site has them; dead links stay, so that Sphinx notices them."""

    def shown(link: re.Match[str]) -> str:
        words, target = link[1], (page.parent / link[2]).resolve()
        if not target.exists() or (target.is_relative_to(docs) and target.is_file() and target.suffix != ".py"):
            return f"[]({link[2]}{link[3] or ''})" if _FILE.fullmatch(words) else link[0]
        path = f"`{target.relative_to(docs.parent)}`"
        return path if words.strip("`") in path else f"{words} ({path})"

    return _LINK.sub(shown, text)


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    docs = Path(app.srcdir)
    text = with_links_of_a_site(source[0], Path(app.env.doc2path(name)), docs)
    source[0] = text + (contents(text) if name == app.config.root_doc else "")


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
