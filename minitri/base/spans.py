"""Places in a source text. A `Source` is a text with a name. A `Span` is a range of its characters.

Span(Source("<expression>", "relu(x)"), 5, 6).text      x
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A text, and its name in messages: a file name or `<expression>`."""

    name: str
    text: str

    def line_column(self, offset: int) -> tuple[int, int]:
        """The line and column of a character offset, both counted from 1."""
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """The characters from `start` up to `end` (exclusive) of a source.

    `node` is the number of the graph node that was made for this text (see `Graph.numbered`). So every later IR that
    keeps the span also knows the node.
    """

    source: Source
    start: int
    end: int
    node: int | None = None

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """The smallest span that covers this span and another one of the same source."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        line, column = self.source.line_column(self.start)
        return f"{self.source.name}:{line}:{column}"
