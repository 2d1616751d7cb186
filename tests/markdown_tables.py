"""Markdown for generated pages: tables and code.

In: texts. Out: Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Cells may contain `|`."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    """Text as code in Markdown. Empty text stays empty."""
    return f"`{text}`" if text else ""
