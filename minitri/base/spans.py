"""Positions in a source text. A `Source` is a program text and its name. A `Span` is a range of characters of a
`Source`.

Example: in the text `relu(x)`, the argument x is the span from character 5 up to character 6 (exclusive).

    Span(Source("<expression>", "relu(x)"), 5, 6).text      x
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate

from minitri.base.nodes import Record


class Source(Record):
    """A program text. The field `name` is a file name, or a name such as `<expression>`."""

    name: str
    text: str

    def line_column(self, offset: int) -> tuple[int, int]:
        """Returns the line and column of a character offset, both counted from 1."""
        starts = _line_starts(self.text)
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1


@lru_cache(maxsize=16)
def _line_starts(text: str) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in text.split("\n"))][:-1]


class Span(Record):
    """The characters from `start` up to `end` (exclusive) of a source.

    `node` is the number of the graph node that the compiler made from these characters (see `Graph.numbered`).
    Operations of kernels and tile programs store spans, and the field `node` of a span names the graph node that the
    operation comes from.
    """

    source: Source
    start: int
    end: int
    node: int | None = None

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """Returns the smallest span that covers this span and another span of the same source."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))

    @property
    def line_column(self) -> tuple[int, int]:
        """The line and column of the span's first character, both counted from 1."""
        return self.source.line_column(self.start)

    @property
    def first_line(self) -> str:
        """The whole line of the source on which the span begins."""
        return self.source.text.split("\n")[self.line_column[0] - 1].rstrip("\r")

    def __str__(self) -> str:
        return "{}:{}:{}".format(self.source.name, *self.line_column)
