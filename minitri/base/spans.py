"""Places in a source text: `Source` is a text with a name, `Span` a range of its characters.

Span(Source("<expression>", "relu(x)"), 5, 6).text      x
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name it is shown under (a file name, `<expression>`)."""

    name: str
    text: str

    def line_column(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters [start, end) of a source; `node`: which node of the graph (their
    numbers: minitri/graph/ir.py) was made for it. So what keeps its spans knows its nodes too."""

    source: Source
    start: int
    end: int
    node: int | None = None

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """The smallest span that covers both."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        line, column = self.source.line_column(self.start)
        return f"{self.source.name}:{line}:{column}"
