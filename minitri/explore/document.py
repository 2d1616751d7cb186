"""A compilation as the explorer's page takes it: plain data, ready for JSON.

    document  = {title, command, programs}                  one program, or two that are compared
    program   = {name, target, sizes, sources, stages, marks, views, passes, …}
    source    = {name, text, line, library}                 `line`: where the text begins in its file
    stage     = {name, text, links} | {name, missing}       links: for each line its marks
    mark      = {label, type, spans}                        spans: [source, start, end]

A mark is what counterparts have in common: the page lights up everything that shares one with what
the pointer is on. Texts are kept as they are; the page writes them as text and as nothing else.

Left out: HTML (page.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from minitri.backend.artifacts import StageUnavailable
from minitri.backend.source import line_ops
from minitri.diagnostics import Source, Span
from minitri.explore.command import command
from minitri.explore.drawing import views
from minitri.graph.ir import Graph, Input, Node
from minitri.kernel.ir import Op
from minitri.kernel.text import format_op
from minitri.pipeline import Compilation
from minitri.tile.text import statements


def document(*compiled: Compilation, labels: Sequence[str] = ()) -> dict[str, Any]:
    """The data of a page about one program, or about several that are compared."""
    first = compiled[0]
    programs = [program(c) | {"label": label} for c, label in zip_longest(compiled, labels, fillvalue="")]
    return {"title": first.context.entry, "command": command(first), "programs": programs}


def program(compiled: Compilation) -> dict[str, Any]:
    """One program at all its stages."""
    book = _Book()
    stages = [_stage(compiled, name, book) for name in compiled.stages]
    drawn: list[dict[str, Any]] = []
    if "graph.simplified" in compiled.stages:
        graph = compiled.value("graph.simplified")
        drawn = views(graph, lambda n: [book.mark(s) for s in graph.spans.get(n, ())])
    return {
        "name": compiled.context.entry, "target": str(compiled.context.target),
        "sizes": dict(compiled.context.sizes), "sources": book.sources(compiled), "stages": stages,
        "marks": book.marks(), "views": drawn,
    }  # fmt: skip


class _Book:
    """Numbers spans; one number is one mark."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Source, int, int], int] = {}
        self.spans: list[Span] = []

    def mark(self, span: Span) -> int:
        key = (span.source, span.start, span.end)
        if key not in self.numbers:
            self.numbers[key] = len(self.spans)
            self.spans.append(span)
        return self.numbers[key]

    def sources(self, compiled: Compilation) -> list[dict[str, Any]]:
        self.order = list(dict.fromkeys([compiled.context.module.span.source, *(s.source for s in self.spans)]))
        return [
            {"name": s.name, "text": s.text, "line": 1, "library": s.name.startswith("minitri/library")}
            for s in self.order
        ]

    def marks(self) -> list[dict[str, Any]]:
        return [
            {"label": s.text, "type": "", "spans": [[self.order.index(s.source), s.start, s.end]]} for s in self.spans
        ]


def _stage(compiled: Compilation, name: str, book: _Book) -> dict[str, Any]:
    try:
        text = compiled[name]
    except StageUnavailable as error:
        return {"name": name, "missing": error.message}
    return {"name": name, "text": text, "links": _links(compiled, name, text, book)}


def _links(compiled: Compilation, name: str, text: str, book: _Book) -> list[list[int]]:
    lines = text.split("\n")
    found: dict[int, Any] = {}
    if name == "triton":
        found = {n - 1: op.spans for n, op in line_ops(compiled.value("triton")).items()}
    elif name in ("tile", "tile.masked"):
        table = {t: op.spans for p in compiled.value(name) for op, t in statements(p).items()}
        found = {k: table[line.strip()] for k, line in enumerate(lines) if line.strip() in table}
    elif name == "kernels":
        names: dict[Op, str] = {}
        table = {format_op(op, names): op.spans for kernel in compiled.value(name).kernels for op in kernel.body}
        found = {k: table[line.strip()] for k, line in enumerate(lines) if line.strip() in table}
    elif name.startswith("graph"):
        graph: Graph = compiled.value(name)
        nodes: list[Node] = [n for n in graph.nodes() if not isinstance(n, Input)]
        rows = [k for k, line in enumerate(lines) if line.startswith("  %")]
        found = {k: graph.spans.get(n, ()) for k, n in zip(rows, nodes)}
    return [[book.mark(s) for s in found.get(k, ())] for k in range(len(lines))]
