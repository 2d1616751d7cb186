"""Lists the files of minitri that compile a program from text to Triton source without optimisations.

    python tests/reading_list.py             prints the files in reading order, with lines of code
    python tests/reading_list.py --page      writes docs/learn/reading.md

In: the programs of `PROGRAMS`, each parsed and compiled by the passes of `CORE` (minitri/pipeline.py). Out: each
file of which a function ran. A file that was only imported is not in the list. Lines of code are the lines of the
whole file without blank lines, comments and docstrings. Verifiers do not run: they only check the results of passes.

`sys.settrace` reports the calls. A function that runs while a module is imported does not count.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import os
import subprocess
import sys
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from unittest import mock

from markdown_tables import markdown_table

from minitri import pipeline
from minitri.base.text_tables import table
from minitri.graph.parameter_binding import Instance
from minitri.language.parser import parse_module
from minitri.pipeline import Compilation, Context

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "learn" / "reading.md"
ROOMS = "minitri/optimize/"
PROGRAMS = (
    "def add(x: f32[N], y: f32[N]) -> f32[N]:\n    return x + y\n",
    "def rows(x: f32[M, N]) -> f32[M, N]:\n    return softmax(x, axis=-1)\n",
    "def linear(x: f16[M, K], w: f16[K, N], b: f16[N]) -> f16[M, N]:\n    return relu(x @ w + b)\n",
)
HEAD = """\
# Reading list

<!-- Made by `python tests/reading_list.py --page`. Do not edit. -->

`minitri compile -O0` takes a program from text to Triton source and leaves out every optimisation. These are the
Python files that it runs for three programs: an addition, a softmax and a linear layer. They are in the order in which
their first function is called. Two things run beside this path and are not listed. The verifiers check what each pass
has made. `Program` binds arguments and launches kernels. Lines are lines of code: blank lines, comments and docstrings
are not counted.
"""
BESIDE_HEAD = """\
## Read beside them

Part of the path is in tables, which the Python files read, and in the functions that generated kernels call. Open each
of these files beside the file in the last column.
"""
BESIDE = (
    ("minitri/language/grammar.lark", "minitri/language/parser.py", "the grammar: the whole syntax of the language"),
    ("minitri/language/library", "minitri/language/signatures.py", "functions written in the language itself, such as `softmax` and `relu`"),
    ("minitri/language/signatures.toml", "minitri/language/signatures.py", "the parameters of functions that are not elementwise"),
    ("minitri/base/operators.toml", "minitri/base/operators.py", "a row for each elementwise operator: its meaning and its Triton text"),
    ("minitri/base/reductions.toml", "minitri/base/operators.py", "a row for each reduction and scan"),
    ("minitri/graph/lines.toml", "minitri/graph/ir.py", "how each node of a graph is printed"),
    ("minitri/kernels/lines.toml", "minitri/kernels/ir.py", "how each op of a kernel or tile program is printed"),
    ("minitri/tiles/lines.toml", "minitri/tiles/ir.py", "how the rest of a tile program is printed"),
    ("minitri/triton/rt.py", "minitri/triton/emit.py", "the functions that kernels call as `rt.NAME`"),
)  # fmt: skip
"""Files that the tracer does not see: the file, the file of the list beside which to read it, and what it has."""
ROOMS_HEAD = """\
## Optimisations that still run

`minitri/optimize/` holds the optimisations. The list above should name none of its files. These functions are called
all the same:
"""


# ---- tracing -----------------------------------------------------------------------------


@dataclass
class Trace:
    """The modules of minitri whose functions ran, in the order of their first call.

    functions    the functions of each module that were called
    callers      the modules that called them
    """

    order: list[str] = field(default_factory=list)
    functions: dict[str, set[str]] = field(default_factory=dict)
    callers: dict[str, set[str]] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """A trace function for `sys.settrace`. It returns None, so lines are not traced."""
        module = module_of(frame)
        if not is_ours(module) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED or is_import(frame):
            return  # the bodies of modules and classes are not functions
        if module not in self.functions:
            self.order.append(module)
            self.functions[module], self.callers[module] = set(), set()
        self.functions[module].add(frame.f_code.co_qualname.split(".<locals>")[0])
        caller = module_of(frame.f_back) if frame.f_back else ""
        if is_ours(caller) and caller != module:
            self.callers[module].add(caller)


def module_of(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "minitri"


def is_import(frame: FrameType) -> bool:
    """Whether a module of minitri is being imported: the body of one is on the stack."""
    before = frame.f_back
    while before is not None:
        if before.f_code.co_name == "<module>" and is_ours(module_of(before)):
            return True
        before = before.f_back
    return False


def traced(source: str) -> Trace:
    """The functions that run when one program is compiled without optimisations."""
    trace = Trace()
    unverified = tuple(replace(p, verify=lambda value: None) for p in pipeline.CORE)
    with mock.patch.object(pipeline, "CORE", unverified):
        sys.settrace(trace)
        try:
            module = parse_module(source)
            context = Context(module, module.functions[-1].name, Instance(), without=frozenset({"all"}))
            Compilation(context)["triton"]
        finally:
            sys.settrace(None)
    return trace


def merged(orders: Iterable[list[str]]) -> list[str]:
    """Merges several orders into one. A new element comes after the element before it in its own order."""
    whole: list[str] = []
    for order in orders:
        place = 0
        for name in order:
            if name not in whole:
                whole.insert(place, name)
            place = whole.index(name) + 1
    return whole


# ---- files -------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """One file of the list. `path` is relative to the root of the repository."""

    path: str
    lines: int
    title: str
    functions: tuple[str, ...]
    callers: tuple[str, ...]

    @property
    def room(self) -> bool:
        return self.path.startswith(ROOMS)


def lines_of_code(source: str) -> int:
    """The lines of Python source without blank lines, comments and docstrings.

    Example: `'"Adds."\\n\\nx = 1  # one\\n'` has one line of code. Every line of a string that is
    no docstring counts. SyntaxError if `source` is not Python.
    """
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(source)))


def docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def path_of(module: str) -> str:
    return str(Path(sys.modules[module].__file__ or "").resolve().relative_to(ROOT.resolve()))


def title_of(source: str) -> str:
    """The first sentence of a module's docstring."""
    paragraph = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).split(". ")[0].rstrip(".")


def reading_list() -> list[File]:
    """The files of the plain path in reading order. Run it in a fresh process: caches hide calls."""
    traces = [traced(source) for source in PROGRAMS]
    return [file_of(module, traces) for module in merged(t.order for t in traces)]


def file_of(module: str, traces: list[Trace]) -> File:
    functions = {f for t in traces for f in t.functions.get(module, ()) if "<" not in f}
    callers = {path_of(c) for t in traces for c in t.callers.get(module, ())}
    path = path_of(module)
    source = (ROOT / path).read_text(encoding="utf-8")
    return File(path, lines_of_code(source), title_of(source), tuple(sorted(functions)), tuple(sorted(callers)))


# ---- showing -----------------------------------------------------------------------------


def totals(files: list[File]) -> str:
    core = [f for f in files if not f.room]
    whole, rest = sum(f.lines for f in files), sum(f.lines for f in core)
    return f"Files: {len(files)}, lines of code: {whole:,}. Without {ROOMS}: {len(core)} and {rest:,}."


def plain_text(files: list[File]) -> str:
    parts = [table([("file", "lines"), *((f.path, f"{f.lines:,}") for f in files)]), totals(files)]
    if rooms := [(f.path, ", ".join(f.callers)) for f in files if f.room]:
        parts += ["Optimisations that ran although nothing should be optimised:"]
        parts += [table([("file", "called by"), *rooms], left=(0, 1))]
    return "\n\n".join(parts) + "\n"


def page(files: list[File]) -> str:
    """The text of docs/learn/reading.md."""
    rows = [(linked(f.path), f"{f.lines:,}", f.title) for f in files]
    parts = [HEAD, markdown_table(("file", "lines", "what it is"), rows), totals(files) + "\n"]
    beside = [(linked(path), what, linked(reader)) for path, reader, what in BESIDE]
    parts += [BESIDE_HEAD, markdown_table(("file", "what it is", "beside"), beside)]
    if rooms := [(f"`{f.path}`", codes(f.functions), codes(f.callers)) for f in files if f.room]:
        parts += [ROOMS_HEAD, markdown_table(("file", "functions", "called by"), rooms)]
    return "\n".join(parts)


def linked(path: str) -> str:
    return f"[`{path}`](../../{path})"


def codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def page_of_fresh_process() -> str:
    """The page, made where no cache hides a call."""
    command = [sys.executable, str(Path(__file__).resolve()), "--print-page"]
    places = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=places).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="The files that -O0 runs, in reading order.")
    parser.add_argument("--page", action="store_true", help="write docs/learn/reading.md")
    parser.add_argument("--print-page", action="store_true", help="print the text of docs/learn/reading.md")
    given = parser.parse_args()
    files = reading_list()
    if given.page:
        PAGE.write_text(page(files), encoding="utf-8")
    print(page(files) if given.print_page else plain_text(files), end="")


if __name__ == "__main__":
    main()
