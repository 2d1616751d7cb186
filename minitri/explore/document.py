"""A compilation as plain data for the explorer's page, ready for JSON.

    document  = {title, command, panes, programs, diffs}    one program, or several that are compared; panes: which
                                                            are open, the usual ones if none is named
    program   = {name, label, target, sizes, sources, stages, marks, views, player, passes, ledger,
                 figures, quick}
    source    = {name, text, line, library}                 `line`: where the text begins in its file
    stage     = {name, text, links, how} | {name, missing}  links: for each line its marks; how: a letter for each
                                                            line, own, serves or whole (trace.py)
    mark      = {label, spans}                              spans: [source, start, end]

A mark is a node of the graph; its number is that of trace.py. The page lights up everything that
shares one with what the pointer is on. Texts are kept as they are; the page writes them as text and as
nothing else. Left out: HTML (page.py).

A page also says how to make it again: a line for a shell,

    minitri explore examples/linear.mt -D M=512 --target cuda:80 -o linear.html

or, where the text of the program is in no file, lines of Python. What the page shows besides the program is part of it:
what it is compared with, which panes are open. The command line has no options of schedules for the first program; they
are Python's too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minitri.base.diagnostics import CompileError, printable, suggest
from minitri.base.spans import Source, Span
from minitri.explore.drawing import views
from minitri.explore.passes import passes, patch
from minitri.explore.plans import plans
from minitri.explore.player import function_of, player
from minitri.explore.resources import figures
from minitri.explore.trace import NodeInfo, Trace
from minitri.hardware.targets import StageUnavailable
from minitri.pipeline import OUR_STAGES, Compilation, Context
from minitri.tiles.schedule import Options

PANES = ("source", "drawn", "passes", "ledger", "resources", "player", "diff")  # beside the stages


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows besides its first program: `compare`: what the second has otherwise, as text by name;
    `measured`: seconds of the first one's kernels by name; `panes`: which are open."""

    compare: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, float] | None = None
    panes: Sequence[str] = ()

    @property
    def label(self) -> str:
        """What the second program is called, besides its own name and target."""
        named = ("target", "file", "entry", "expression")
        return ", ".join(f"{n}={v}" for n, v in self.compare.items() if n not in named)


def document(
    compiled: Compilation, other: Compilation | None = None, *, quick: bool = False, shown: Shown = Shown()
) -> dict[str, Any]:
    """The data of a page about one program, or about two that are compared; `quick`: only what is there
    without Triton's compiler."""
    name = compiled.context.entry if other is not None and other.context.entry != compiled.context.entry else ""
    programs = [program(compiled, name, quick, shown.measured)]
    if other is not None:
        second = other.context.entry if name else ""
        programs.append(program(other, ", ".join(filter(None, (second, shown.label))), quick))
    _check_panes(shown.panes, compiled)
    made = {
        "title": compiled.context.entry, "command": command(compiled, shown.compare, shown.panes),
        "panes": list(shown.panes), "programs": programs,
    }  # fmt: skip
    return made | ({"diffs": [_differences(programs[0], p) for p in programs[1:]]} if programs[1:] else {})


def _check_panes(panes: Sequence[str], compiled: Compilation) -> None:
    known = (*compiled.stages, *PANES)
    for pane in panes:
        if (name := pane.partition("@")[0]) not in known:
            help = f"{suggest(name, known)} panes are {', '.join(known)}".strip()
            raise CompileError("MT0404", f"there is no pane `{name[:40]}`", help=help)


def _differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """For each stage that both have: what makes the second's text of the first's."""
    old, new = ({s["name"]: s["text"] for s in p["stages"] if "text" in s} for p in (first, other))
    return {name: patch(old[name], new[name]) for name in new if name in old}


def program(
    compiled: Compilation, label: str = "", quick: bool = False, measured: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """One program at all its stages. What takes longer than a keystroke is not there if that is asked for:
    machine code, the player, the plans that were not taken."""
    trace = Trace(compiled)
    sources = _Sources(trace)
    return {
        "name": compiled.context.entry, "label": label, "target": str(compiled.context.target),
        "sizes": dict(compiled.context.sizes), "sources": sources.data,
        "stages": [_stage(trace, name, quick) for name in trace.stages],
        "marks": [_mark(node, sources) for node in trace.nodes], "views": _views(trace),
        "player": None if quick else player(compiled), "passes": passes(compiled, ours=quick),
        "ledger": None if quick else plans(trace), "figures": figures(compiled, measured, quick), "quick": quick,
    }  # fmt: skip


def _stage(trace: Trace, name: str, quick: bool) -> dict[str, Any]:
    if quick and name not in OUR_STAGES:
        return {"name": name, "missing": "Triton's compiler is at work"}
    try:
        stage = trace[name]
    except StageUnavailable as error:
        return {"name": name, "missing": error.message}
    return {
        "name": name, "text": stage.text, "links": [sorted(nodes) for nodes in stage.lines],
        "how": "".join(how[:1] or " " for how in stage.how),
    }  # fmt: skip


def _mark(node: NodeInfo, sources: _Sources) -> dict[str, Any]:
    return {"label": node.text, "spans": [place for s in node.spans for place in sources.place(s)]}


def _views(trace: Trace) -> list[dict[str, Any]]:
    """The graph that is computed, drawn."""
    if "graph.simplified" not in trace.stages:
        return []
    graph = trace.compilation.value("graph.simplified")
    return views(graph, lambda node: sorted(trace.of(graph.spans.get(node, ()))))


class _Sources:
    """The texts that nodes come from: the program's whole, of the library what is used."""

    def __init__(self, trace: Trace) -> None:
        spans = [s for n in trace.nodes for s in n.spans]
        own, *rest = trace.sources
        self.parts = [(own, 0, len(own.text)), *(part for s in rest for part in _used(s, spans))]
        self.data = [
            {"name": s.name, "text": s.text[a:b], "line": s.line_column(a)[0], "library": s is not own}
            for s, a, b in self.parts
        ]

    def place(self, span: Span) -> list[list[int]]:
        """[source, start, end] of a span, if its text is shown."""
        for number, (source, start, end) in enumerate(self.parts):
            if source is span.source and start <= span.start and span.end <= end:
                return [[number, _units(source.text[start : span.start]), _units(source.text[start : span.end])]]
        return []


def _units(text: str) -> int:
    """The length that JavaScript gives a text."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _used(source: Source, spans: Sequence[Span]) -> list[tuple[Source, int, int]]:
    """The functions of a source that hold a span; all of it if it has none."""
    starts = [m.start() for m in re.finditer(r"^def ", source.text, re.MULTILINE)]
    if not starts:
        return [(source, 0, len(source.text))]
    parts = zip(starts, [*starts[1:], len(source.text)])
    used = [(a, b) for a, b in parts if any(s.source is source and a <= s.start < b for s in spans)]
    return [(source, a, a + len(source.text[a:b].rstrip())) for a, b in used]


# ---- the command that makes a page again --------------------------------------------------------


DEFAULT_TARGET = "cuda:90"


def command(compiled: Compilation, compare: Mapping[str, Any] | None = None, panes: Sequence[str] = ()) -> str:
    """How to make the page of a compilation again; `compare`: what the second program has otherwise."""
    context = compiled.context
    name = context.module.span.source.name
    if context.start is None and context.options == Options() and (name.endswith(".mt") or name == "<expression>"):
        words = [*_words(context), *_shown(compare or {}, panes), "-o", f"{context.entry}.html"]
        return printable(" ".join(["minitri", "explore", *map(shlex.quote, words)]))
    return _python(context, compare, panes)


def _words(context: Context) -> Iterator[str]:
    source = context.module.span.source
    if source.name == "<expression>":
        yield from ("-e", source.text)
        for p in function_of(context).params:
            if p.annotation is not None:
                yield from ("-t", f"{p.name}={p.annotation.span.text}")
    else:
        yield source.name
        if context.entry != context.module.functions[-1].name:
            yield from ("--entry", context.entry)
    for size, value in _sizes(context).items():
        yield from ("-D", f"{size}={','.join(map(str, value)) if isinstance(value, tuple) else value}")
    for left_out in sorted(context.without):
        yield from ("--without", left_out)
    if str(context.target) != DEFAULT_TARGET:
        yield from ("--target", str(context.target))


def _shown(compare: Mapping[str, Any], panes: Sequence[str]) -> Iterator[str]:
    for name, value in compare.items():
        yield from ("--compare", f"{name}={value}")
    if panes:
        yield from ("--panes", ",".join(panes))


def _sizes(context: Context) -> dict[str, int | tuple[int, ...]]:
    """The sizes as a call of `lower` has them: the axes of a pack together."""
    sizes: dict[str, Any] = dict(context.sizes)
    for pack, rank in context.instance.packs.items():
        axes = [sizes.pop(f"{pack}{k}", None) for k in range(rank)]
        if None not in axes:
            sizes[pack] = tuple(axes)
    return sizes


def _python(context: Context, compare: Mapping[str, Any] | None, panes: Sequence[str]) -> str:
    """For texts that are in no file: a program of a cell, of a string, of a stage."""
    usual = {"target": DEFAULT_TARGET, "without": [], "options": Options(), "compare": {}, "panes": []}
    asked = (str(context.target), sorted(context.without), context.options, dict(compare or {}), list(panes))
    unusual = {name: value for name, value in zip(usual, asked) if value != usual[name]}
    given = ", ".join(f"{name}={value!r}" for name, value in {**_sizes(context), **unusual}.items())
    return f"{context.entry}.explore({given}).save('{context.entry}.html')"
