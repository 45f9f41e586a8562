"""How large the product is, for orientation: ``make size``. Code is what is neither blank, comment, import nor docstring."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("simulator", "calibrate", "paceline")
_NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(text: str) -> int:
    """Lines of a module's text that hold code."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - left_out)


def main() -> None:
    """Print the house in one line, and its largest files."""
    texts = {path.relative_to(ROOT): path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    code = {path: lines_of_code(text) for path, text in texts.items()}
    lines = sum(len(text.splitlines()) for text in texts.values())
    print(f"{sum(code.values()):,} lines of code, {lines:,} in all, {len(code)} modules")
    for path in sorted(code, key=lambda path: -code[path])[:10]:
        print(f"{code[path]:6,} {path}")


if __name__ == "__main__":
    main()
