"""Plain tables, Markdown tables and figures with units, for people: no colour, no dependency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Rows of cells in columns, aligned to the right; the columns whose numbers are in `left`, to the left."""
    lines = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(w.ljust(n) if k in left else w.rjust(n) for k, (w, n) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    )


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a cell may hold `|`."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    """Text as code in Markdown; empty text stays empty."""
    return f"`{text}`" if text else ""


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def byte_size(count: float) -> str:
    """A size in bytes with a decimal unit: B, kB, MB or GB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.{0 if unit == 'B' else 1}f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
