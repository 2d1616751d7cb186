"""The first look: one program, the product in it at every stage, and a checked run, on one or two screens.

In: nothing, or a module. Out: lines on stdout. Of each stage only the lines that come from one node of the graph are
shown (minitri/explore/trace.py knows which), with the command that prints the whole stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

import minitri as mt
from minitri.cli.console import STAGES, sizes_text
from minitri.cli.inputs import Size, make_inputs
from minitri.explore.trace import StageTrace, Trace
from minitri.hardware.targets import StageUnavailable
from minitri.program import Program

TARGET = "cuda:90"
LINES, WIDTH = 2, 100  # of each stage that are shown
STRUCTURED = ("contract", "reduce", "scan")  # what is worth following, the first one that there is
TELLING = re.compile(r"binary @|contract|dot |dot\(|wgmma\.mma|[HIQD]G?MMA|reduce|scan|shfl|SHFL")


def demo(file: str, sizes: Mapping[str, Size]) -> None:
    """Prints the first look at a module. `sizes`: the known sizes of the stages; others stay symbols."""
    program = mt.compile(Path(file))
    text = program.module.source.text
    keywords: dict[str, Any] = {**sizes}
    trace = Trace(program.lower(target=TARGET, **keywords).compilation)
    followed = _followed(trace)
    span = trace.nodes[followed].spans[0]
    click.echo(f"\n# The program, {file}\n\n{text.strip()}\n")
    shown = " ".join([file, *(f"-D {word}" for word in sizes_text(sizes).split())])
    click.echo(f"# `{span.text}` at every stage, for {TARGET}\n")
    for name in trace.stages:
        click.echo("\n".join(_stage(trace, name, followed)))
    click.echo(f"\nA whole stage:  minitri compile {shown} --emit=tile    (or any other name, or all)")
    click.echo(f"All as a page:  minitri explore {shown} -o page.html\n")
    _run(program, file)
    click.echo(
        "\n# Where to go next\n\nREADME.md has a tour, docs/learn/ the compiler, docs/reference/language.md the language."
    )


def _followed(trace: Trace) -> int:
    """The number of the node whose lines are shown."""
    ops = [n.op.partition(".")[0] for n in trace.nodes]
    return next((ops.index(op) for op in STRUCTURED if op in ops), len(ops) - 1)


def _stage(trace: Trace, name: str, node: int) -> Iterator[str]:
    """The title of a stage, and the lines that tell most about a node."""
    try:
        stage = trace[name]
    except StageUnavailable as error:
        yield f"{name:<17} {error.message}"
        return
    own = _own(stage, node)
    count = len(stage.text.splitlines())
    yield f"{name:<17} {STAGES[name].get('meaning', '')} ({count:,} lines, {len(own)} from here)"
    telling = [line for line in own if TELLING.search(line)] or own
    yield from (f"    {line.strip()[:WIDTH]}" for line in telling[:LINES])


def _own(stage: StageTrace, node: int) -> list[str]:
    """The lines of a stage that come from a node."""
    rows = zip(stage.text.splitlines(), stage.lines, stage.how)
    return [line for line, nodes, how in rows if node in nodes and how == "own"]


def _run(program: Program, path: str) -> None:
    """One call with random numbers, by the kernel and by every stage before it."""
    inputs = make_inputs(program.function, {}, {}, 0)
    result = program(*inputs.arrays)
    first: Any = result[0] if isinstance(result, tuple) else result
    report = program.check(*inputs.arrays)
    click.echo(
        f"# A run: {sizes_text(inputs.sizes)}\n\n{first.dtype}{list(first.shape)}, the first numbers: {first.ravel()[:4]}"
    )
    verdict = "ok" if report.ok else f"WRONG, {report.first}"
    click.echo(f"{len(report.ran)} stages of it checked against numpy: {verdict}")
    click.echo(f"Again:  minitri run {path}\nStages: minitri check {path}")
