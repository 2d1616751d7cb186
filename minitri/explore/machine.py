"""Which nodes each line of Triton's own stages comes from.

In: a compilation, one of those stages, and the origin of each line of the generated source. Out: the origin of each
line of the stage's text.

The location of an operation leads to a generated line, and the operation has the nodes of that line (places.py). Some
operations have no location: a constant that Triton hoists, an address, tensor memory. They have the nodes of the
operations that use their results. If nothing uses them, or if the location is the head of the function, they belong to
the whole kernel and have the nodes that it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minitri.explore.places import Row, amdgcn_rows, llvm_rows, mlir_rows, ptx_rows, sass_rows, straightened
from minitri.explore.served import NONE, NOWHERE, OWN, SERVES, WHOLE, Origin, served
from minitri.explore.tensor_memory import TENSOR, with_tensor_memory
from minitri.pipeline import Compilation
from minitri.triton.artifacts import disassembly, kernel_text

READERS = {"ttir": mlir_rows, "ttgir": mlir_rows, "llir": llvm_rows, "ptx": ptx_rows, "amdgcn": amdgcn_rows}


def machine_lines(compiled: Compilation, stage: str, source: Sequence[Origin]) -> list[Origin]:
    """One for each line of the stage's text: all kernels, each under a line with its name."""
    lines: list[Origin] = []
    for kernel, text, rows in _kernel_rows(compiled, stage):
        frame = _heads(compiled.module_text)[kernel]
        lines += [Origin(source[frame - 1].nodes, ""), *_origins(with_tensor_memory(rows, text, frame), source, frame)]
    return lines


def _kernel_rows(compiled: Compilation, stage: str) -> Iterator[tuple[str, str, list[Row]]]:
    """Each kernel's name, its text, and what each line of that is: an operation or not, and where from."""
    for kernel, built in zip(compiled.value("triton"), compiled.compiled):
        asm = built.asm
        text = kernel_text(asm, stage, kernel.name)
        if stage == "sass":
            lines = disassembly(asm, straightened(asm["ptx"]), kernel, compiled.context.target)
            yield kernel.name, text, sass_rows(text, lines)
        else:
            yield kernel.name, text, READERS[stage](text)


def _heads(text: str) -> dict[str, int]:
    """The line of the generated source that the function of each kernel begins in."""
    lines = enumerate(text.split("\n"), 1)
    return {line[4:].partition("(")[0]: number for number, line in lines if line.startswith("def ")}


def _origins(rows: Sequence[Row], source: Sequence[Origin], frame: int) -> list[Origin]:
    """The nodes of each line of one kernel."""
    whole = Origin(source[frame - 1].nodes, WHOLE)
    places = [[source[n - 1].nodes for n in r.lines if frame < n <= len(source)] for r in rows]
    own = [NONE.union(*found) or None for found in places]
    users = served([(r.defines, r.uses) for r in rows], own, frozenset({TENSOR}))
    made = [Origin(o, OWN) if o else Origin(u, SERVES) if u else whole for o, u in zip(own, users)]
    return [origin if r.operation else NOWHERE for r, origin in zip(rows, made)]
