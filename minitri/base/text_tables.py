"""Formats tables as plain text, and numbers with units. The text of a table has no colours."""

from collections.abc import Iterable, Sequence


def table(rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Returns a table as text. The columns whose positions (counted from 0) are in the argument `left` are
    left-aligned; all other columns are right-aligned.
    """
    lines = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    formats = [f"{'<' if k in left else '>'}{width}" for k, width in enumerate(widths)]
    return "\n".join("  ".join(map(format, line, formats)).rstrip() for line in lines)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def byte_size(count: float) -> str:
    """Returns a size in bytes as text with one of the decimal units B, kB, MB and GB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.{0 if unit == 'B' else 1}f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
