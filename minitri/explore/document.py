"""A compilation as plain data for the explorer's page, ready for JSON.

    document  = {title, command, panes, programs, diffs, about, words}
                                                            panes: the open panes, empty for the usual panes;
                                                            about, words: explanations.py
    program   = {name, label, target, sizes, sources, stages, marks, views, player, passes, ledger,
                 figures, quick, walk}
    source    = {name, text, line, library}                 line: the number of its first line in the file
    stage     = {name, text, links, how} | {name, missing}  links: the marks of each line; how: a letter for each line,
                                                            o(wn), s(erves) or w(hole) (provenance.py)
    mark      = {label, spans}                              spans: [source, start, end]

A mark on a line of text is the index of a graph node. A line of a stage has one mark for each graph node that the line
comes from (provenance.py). The page highlights each text that has a mark (number of a graph node) in common with the
text under the pointer. Texts in the data are not escaped for HTML, because the page inserts them as text, never as
HTML. The file page.py makes the HTML file.

A page also shows the command that makes the same page again. Usually this is a shell command:

    minitri explore examples/linear.mt -D M=512 --target cuda:80 -o linear.html

The command is a line of Python if the program comes from neither a file nor an expression. If the caller gave options
for schedules, the command is a line of Python too. If the page compares two programs, the command also has the settings
of the second program. The command also says which panes are open.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from minitri.base.diagnostics import CompileError, printable, suggest
from minitri.base.spans import Source, Span
from minitri.explore.execution_trace import function_of, player
from minitri.explore.explanations import ABOUT, words_of
from minitri.explore.fusion_drawings import plans
from minitri.explore.graph_drawing import views
from minitri.explore.guided_walk import walk
from minitri.explore.kernel_statistics import figures
from minitri.explore.machine_code import Tell
from minitri.explore.pass_changes import our_passes, patch, triton_passes
from minitri.explore.provenance import Trace
from minitri.hardware.targets import StageUnavailable
from minitri.pipeline import OUR_STAGES, Compilation, Context
from minitri.tiles.schedule import Options

PANES = ("source", "drawn", "passes", "ledger", "resources", "player", "diff")  # panes of the page beside the stages
Seconds = Mapping[str, float] | None  # by the name of a kernel


def document(
    compiled: Compilation, other: Compilation | None = None, *, quick: bool = False, compare: Mapping[str, Any] = {},
    measured: Seconds = None, panes: Sequence[str] = (), tell: Tell = lambda done, text: None,
) -> dict[str, Any]:  # fmt: skip
    """Returns the data of a page about one program, or about two programs that are compared.

    `quick`: whether to leave out the parts of the page that need Triton's compiler.
    `compare`: changed settings of the second program, by name, such as {"target": "cuda:80"}.
    `measured`: the measured seconds of the first program's kernels, by the name of the kernel.
    `panes`: the names of the panes that are open. If `panes` is empty, the usual panes are open.
    `tell`: a function that reports progress. The function `tell` gets the finished fraction, from 0 to 1, and the name
        of the next step.

    Raises CompileError (MT0404) if `panes` names a pane that the page does not have.
    """
    name = compiled.context.entry if other is not None and other.context.entry != compiled.context.entry else ""
    part = 1.0 if other is None else 0.5
    programs = [program(compiled, name, quick, measured, lambda done, text: tell(part * done, text))]
    if other is not None:
        known = ("target", "file", "entry", "expression")  # the page always shows the name and the target
        changed = [f"{n}={v}" for n, v in compare.items() if n not in known]
        label = ", ".join([other.context.entry] * bool(name) + changed)
        programs.append(program(other, label, quick, None, lambda done, text: tell(0.5 + part * done, text)))
    known = (*compiled.stages, *PANES)
    for pane in panes:
        if (name := pane.partition("@")[0]) not in known:
            help = f"{suggest(name, known)} panes are {', '.join(known)}".strip()
            raise CompileError("MT0404", f"there is no pane `{name[:40]}`", help=help)
    first, *others = ({s["name"]: s["text"] for s in p["stages"] if "text" in s} for p in programs)
    diffs = [{name: patch(first[name], new[name]) for name in new if name in first} for new in others]
    return {
        "title": compiled.context.entry, "command": command(compiled, compare, panes),
        "panes": list(panes), "programs": programs, "about": dict(ABOUT),
        "words": words_of(stage for p in programs for stage in p["stages"]), **({"diffs": diffs} if diffs else {}),
    }  # fmt: skip


def program(compiled: Compilation, label: str, quick: bool, measured: Seconds, tell: Tell) -> dict[str, Any]:
    """Returns all stages of one program, as data.

    If `quick` is true, the slow parts of the page's data are left out. Slow parts are Triton's stages and passes, the
    recorded run, the guided walk and the drawings of fusion plans.
    """
    trace = Trace(compiled)
    sources = _Sources(trace)
    marks = [{"label": n.text, "spans": [at for s in n.spans for at in sources.place(s)]} for n in trace.nodes]
    graph = compiled.value("graph.simplified") if "graph.simplified" in trace.stages else None
    drawn = views(graph, lambda node: sorted(trace.of(graph.spans.get(node, ())))) if graph else []
    with ThreadPoolExecutor(1) as aside:  # Triton's passes are printed by another process
        printed = None if quick else aside.submit(triton_passes, trace.machine)
        stages = _stages(trace, quick, tell)
        tell(0.7, "fusion plans")
        played, ours = None if quick else player(compiled), our_passes(compiled)
        made = {
            "name": compiled.context.entry, "label": label, "target": str(compiled.context.target), "quick": quick,
            "sizes": dict(compiled.context.sizes), "sources": sources.data, "stages": stages, "marks": marks,
            "views": drawn, "figures": figures(trace, measured, quick), "ledger": None if quick else plans(trace),
            "player": played, "walk": [] if quick else walk(trace, stages, ours, played),
        }  # fmt: skip
        tell(0.9, "passes")
        return made | {"passes": [*ours, *(printed.result() if printed else [])]}


def _stages(trace: Trace, quick: bool, tell: Tell) -> list[dict[str, Any]]:
    """Returns every stage as data for the page."""
    tell(0, "stages of minitri")
    if not quick and trace.compilation.context.target.stages:
        with suppress(StageUnavailable):  # each stage that is missing has its own note
            # compiles several kernels at the same time
            trace.machine.make(lambda done, text: tell(0.1 + 0.5 * done, text))
    return [_stage(trace, name, quick) for name in trace.stages]


def _stage(trace: Trace, name: str, quick: bool) -> dict[str, Any]:
    if quick and name not in OUR_STAGES:
        return {"name": name, "missing": "Triton's compiler is at work"}
    try:
        stage = trace[name]
    except StageUnavailable as error:
        return {"name": name, "missing": error.message}
    links, letters = [sorted(nodes) for nodes in stage.lines], "".join(how[:1] or " " for how in stage.how)
    return {"name": name, "text": stage.text, "links": links, "how": letters}


class _Sources:
    """The texts that graph nodes come from: the program and the library functions used."""

    def __init__(self, trace: Trace) -> None:
        spans = [s for n in trace.nodes for s in n.spans]
        own, every = trace.source, {id(s.source): s.source for s in spans}.values()
        # The text of an expression is parsed twice, so `every` can have a source that equals `own`.
        self.parts = [(own, 0, len(own.text)), *(part for s in every if s != own for part in _used(s, spans))]
        self.data = [
            {"name": s.name, "text": s.text[a:b], "line": s.line_column(a)[0], "library": s is not own}
            for s, a, b in self.parts
        ]

    def place(self, span: Span) -> list[list[int]]:
        """Returns [[source, start, end]] for a span, or an empty list if the page does not show the text of the span.

        The number `source` is the index of a text of the page: the text that contains the span.
        """
        for number, (source, start, end) in enumerate(self.parts):
            if source == span.source and start <= span.start and span.end <= end:
                return [[number, *(utf16_size(source.text[start:at]) for at in (span.start, span.end))]]
        return []


def utf16_size(text: str) -> int:
    """Returns the length of a text in JavaScript: the number of its UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _used(source: Source, spans: Sequence[Span]) -> list[tuple[Source, int, int]]:
    """For each function that contains one of the spans, returns a tuple: the source text, and the start and end of the
    function.
    """
    starts = [m.start() for m in re.finditer(r"^def ", source.text, re.MULTILINE)]
    if not starts:
        return [(source, 0, len(source.text))]  # the whole source
    parts = zip(starts, [*starts[1:], len(source.text)])
    used = [(a, b) for a, b in parts if any(s.source is source and a <= s.start < b for s in spans)]
    return [(source, a, a + len(source.text[a:b].rstrip())) for a, b in used]


# ---- the command that makes a page again --------------------------------------------------------


DEFAULT_TARGET = "cuda:90"


def command(compiled: Compilation, compare: Mapping[str, Any], panes: Sequence[str]) -> str:
    """Returns the command that makes the page again.

    For a program from a file or an expression, the command is a shell command. A program from a notebook cell, from a
    string or from the text of a stage gets a line of Python.
    """
    context = compiled.context
    name, file = context.module.span.source.name, f"{context.entry}.html"
    if context.start is None and context.options == Options() and (name.endswith(".mt") or name == "<expression>"):
        return printable(shlex.join(["minitri", "explore", *_words(context, compare, panes), "-o", file]))
    asked = {"target": str(context.target), "without": sorted(context.without), "options": context.options}
    asked |= {"compare": dict(compare), "panes": list(panes)}
    unusual = {name: value for name, value in asked.items() if value not in (DEFAULT_TARGET, Options(), [], {})}
    given = ", ".join(f"{name}={value!r}" for name, value in {**_sizes(context), **unusual}.items())
    return f"{context.entry}.explore({given}).save('{file}')"


def _words(context: Context, compare: Mapping[str, Any], panes: Sequence[str]) -> Iterator[str]:
    source = context.module.span.source
    if source.name == "<expression>":
        types = [f"{p.name}={p.annotation.span.text}" for p in function_of(context).params if p.annotation is not None]
        options = [("-e", [source.text]), ("-t", types)]
    else:
        yield source.name
        options = [("--entry", [context.entry] * (context.entry != context.module.functions[-1].name))]
    sizes = {n: ",".join(map(str, v)) if isinstance(v, tuple) else v for n, v in _sizes(context).items()}
    options += [
        ("-D", [f"{name}={size}" for name, size in sizes.items()]),
        ("--without", sorted(context.without)),
        ("--target", [str(context.target)] * (str(context.target) != DEFAULT_TARGET)),
        ("--compare", [f"{name}={value}" for name, value in compare.items()]),
        ("--panes", [",".join(panes)] * bool(panes)),
    ]
    for option, values in options:
        for value in values:
            yield from (option, value)


def _sizes(context: Context) -> dict[str, int | tuple[int, ...]]:
    """Returns the sizes as keyword arguments for `Program.lower`."""
    sizes: dict[str, Any] = dict(context.sizes)
    for pack, rank in context.instance.packs.items():  # the sizes of a pack `*B` become one tuple
        axes = [sizes.pop(f"{pack}{k}", None) for k in range(rank)]
        if None not in axes:
            sizes[pack] = tuple(axes)
    return sizes
