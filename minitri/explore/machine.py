"""Which nodes each line of Triton's own stages comes from.

In: a compilation, one of those stages, and the nodes of each line of the generated source. Out: a set
of nodes for each line of the stage's text.

An operation has the nodes of the generated line that its location leads to (places.py). One without a
place of its own (a constant that Triton hoists, an address) has those of the operations that use what
it computes; if nothing does, or if its location is the head of the function, it belongs to the kernel
as a whole: to the nodes that the kernel writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minitri.backend.artifacts import disassembly, kernel_text
from minitri.explore.places import Row, amdgcn_rows, llvm_rows, mlir_rows, ptx_rows, sass_rows
from minitri.explore.served import NONE, Nodes, served
from minitri.pipeline import Compilation

READERS = {"ttir": mlir_rows, "ttgir": mlir_rows, "llir": llvm_rows, "ptx": ptx_rows, "amdgcn": amdgcn_rows}


def machine_lines(compiled: Compilation, stage: str, source: Sequence[Nodes]) -> list[Nodes]:
    """One set for each line of the stage's text: all kernels, each under a line with its name."""
    lines: list[Nodes] = []
    for kernel, rows in kernel_rows(compiled, stage):
        frame = heads(compiled.module_text)[kernel]
        lines += [source[frame - 1], *_nodes(rows, source, frame)]
    return lines


def kernel_rows(compiled: Compilation, stage: str) -> list[tuple[str, list[Row]]]:
    """What each line of each kernel's text is: an operation or not, and where from."""
    names = [k.name for k in compiled.value("triton")]
    return [(name, _rows(asm, stage, name)) for name, asm in zip(names, compiled.compiled)]


def _rows(asm: Mapping[str, Any], stage: str, name: str) -> list[Row]:
    text = kernel_text(asm, stage, name)
    return sass_rows(text, disassembly(asm, name)) if stage == "sass" else READERS[stage](text)


def heads(text: str) -> dict[str, int]:
    """The line of the generated source that the function of each kernel begins in."""
    lines = enumerate(text.split("\n"), 1)
    return {line[4:].partition("(")[0]: number for number, line in lines if line.startswith("def ")}


def _nodes(rows: Sequence[Row], source: Sequence[Nodes], frame: int) -> list[Nodes]:
    """The nodes of each line of one kernel."""
    whole = source[frame - 1]
    own = [source[r.line - 1] if frame < r.line <= len(source) else None for r in rows]
    users = served([(r.defines, r.uses) for r in rows], own)
    return [(users[k] or whole) if r.operation else NONE for k, r in enumerate(rows)]
