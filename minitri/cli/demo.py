"""`minitri demo`: prints a few lines of every stage of a program, and checks a run of the program.

The function `demo` takes the path of a .mt file (a minitri program), such as examples/linear.mt, and prints to stdout.
The demo chooses one node of the graph, such as a matrix product. For each stage, the demo shows at most two lines that
compute the chosen node. The module minitri/explore/provenance.py finds the lines that belong to a node of the graph.
After the last stage, the demo prints the command that shows a whole stage.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import minitri as mt
from minitri.cli.inputs import Size, make_inputs
from minitri.cli.terminal import STAGES, echo, highlighted, progress, sizes_text, track
from minitri.explore.guided_walk import followed
from minitri.explore.provenance import Trace
from minitri.hardware.targets import StageUnavailable
from minitri.pipeline import OUR_STAGES
from minitri.program import Program

TARGET = "cuda:90"
LINES, WIDTH = 2, 100  # lines of each stage that are shown, and characters of a line
TELLING = re.compile(r"binary @|contract|dot |dot\(|wgmma\.mma|[HIQD]G?MMA|reduce|scan|shfl|SHFL")


def demo(file: str, sizes: Mapping[str, Size]) -> None:
    """Prints the demo for the program in a .mt file. A dimension without a number in `sizes` keeps a symbolic size such
    as N.
    """
    program = mt.compile(Path(file))
    keywords: dict[str, Any] = {**sizes}
    trace = Trace(program.lower(target=TARGET, **keywords).compilation)
    node = followed(trace, [s for s in trace.stages if s in OUR_STAGES]) or 0
    echo(f"\n# The program, {file}\n\n{highlighted('triton', program.module.source.text.strip())}\n")
    shown = " ".join([file, *(f"-D {word}" for word in sizes_text(sizes).split())])
    echo(f"# `{trace.nodes[node].spans[0].text}` at every stage, for {TARGET}\n")
    echo("\n".join(line for name in track("demo", trace.stages) for line in _stage(trace, name, node)))
    echo(f"\nA whole stage:  minitri compile {shown} --emit=tile    (or any other name, or all)")
    echo(f"All as a page:  minitri explore {shown} -o page.html\n")
    _run(program, file)
    echo("\n# Where to go next\n")
    echo("README.md has a tour, docs/learn/ the compiler, docs/reference/language.md the language.")


def _stage(trace: Trace, name: str, node: int) -> Iterator[str]:
    """Yields the title of a stage, and at most `LINES` lines of the stage that compute a given node."""
    try:
        stage = trace[name]
    except StageUnavailable as error:
        yield f"{name:<17} {error.message}"
        return
    rows = zip(stage.text.splitlines(), stage.lines, stage.how)
    own = [line for line, nodes, how in rows if node in nodes and how == "own"]
    yield f"{name:<17} {STAGES[name].get('meaning', '')} ({len(stage.lines):,} lines, {len(own)} from here)"
    # lines with a matrix product, a reduction or a scan, if there are any
    telling = [line for line in own if TELLING.search(line)] or own
    yield from (f"    {highlighted(name, line.strip()[:WIDTH])}" for line in telling[:LINES])


def _run(program: Program, path: str) -> None:
    """Runs the program with random numbers, checks every stage against numpy, and prints both results."""
    inputs = make_inputs(program.function, {}, {}, 0)
    with progress("check"):
        result = program(*inputs.arrays)
        report = program.check(*inputs.arrays)
    first: Any = result[0] if isinstance(result, tuple) else result
    echo(f"# A run: {sizes_text(inputs.sizes)}\n")
    echo(f"{first.dtype}{list(first.shape)}, the first numbers: {first.ravel()[:4]}")
    verdict = "ok" if report.ok else f"WRONG, {report.first}"
    echo(f"{len(report.ran)} stages of it checked against numpy: {verdict}")
    echo(f"Again:  minitri run {path}\nStages: minitri check {path}")
