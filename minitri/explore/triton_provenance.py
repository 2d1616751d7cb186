"""For each line of the stage `triton` and of Triton's own stages, finds the graph nodes that the line comes from.

The function `generated_lines` takes the generated Triton source, its kernels and the graph nodes of each op. The
function `machine_lines` takes a `MachineCode` and the name of one of Triton's own stages. Both functions return an
`Origin` for each line, which has the graph nodes that the line comes from.

    j = tl.arange(0, 512)                      {2, 7}   serves the load and the store
    m5 = j < 300                               {2, 7}
    v0 = tl.load(p0 + j, mask=m5, other=0)     {2}      the load itself
    tl.store(p1 + j, v3, mask=m5)              {7}

A source line that computes an op of the tile program gets the graph nodes of the op. Some lines compute an index, a
mask or a loop-carried value. Such a line gets the graph nodes of all lines that use the computed value (function
`served`). The line at the head of a loop gets the graph nodes of all lines in the loop's body. Some lines serve the
kernel as a whole: the head of the function, the heads of its branches, and lines that wait for an earlier kernel. A
line that serves the whole kernel comes from the graph nodes of all stores of the kernel.

An operation in Triton's own stages can have a location, which is a line of the generated source (debug_locations.py).
An operation with a location gets the graph nodes of the source line to which the location leads. Triton gives no
location to some operations, such as addresses, allocations of tensor memory, and constants that it moves out of a loop.
An operation without a location gets the graph nodes of its users (the operations that read its result). If no operation
uses the result, the operation gets the graph nodes of all stores of the kernel. An operation whose location is the head
of the function is treated as an operation without a location.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minitri.base.nodes import grouped
from minitri.explore.debug_locations import READERS, TENSOR, Row, sass_rows, with_tensor_memory
from minitri.explore.machine_code import KernelCode, MachineCode
from minitri.kernels.ir import Op, Store
from minitri.triton.emit import EmittedKernel
from minitri.triton.source import line_ops

Nodes = frozenset[int]
NONE: Nodes = frozenset()
OWN, SERVES, WHOLE = "own", "serves", "whole"


class Origin(NamedTuple):
    """The graph nodes from which a line of code comes, and the role of the line. The field `how` has one of four
    values:

    "own": the line computes a part of these graph nodes.
    "serves": the line makes an index, a mask or a constant that is used to compute these graph nodes.
    "whole": the line serves the kernel as a whole, such as the head of the function.
    "": the line computes nothing, because it is a brace, a label or a comment.
    """

    nodes: Nodes
    how: str


NOWHERE = Origin(NONE, "")


def _origins(rows: Sequence[Row], own: Sequence[Nodes | None], kept: frozenset[str], frame: Nodes) -> list[Origin]:
    """Returns the `Origin` (graph nodes) of each line of one kernel."""
    users = served(rows, own, kept)
    # `own`: the nodes that a line computes, or None. `frame`: the nodes of the kernel's stores, for lines whose result
    # is not used.
    made = [Origin(o, OWN) if o else Origin(u, SERVES) if u else Origin(frame, WHOLE) for o, u in zip(own, users)]
    return [origin if row.operation else NOWHERE for row, origin in zip(rows, made)]


def served(rows: Sequence[Row], own: Sequence[Nodes | None], kept: frozenset[str]) -> list[Nodes]:
    """Returns the graph nodes of each line of a stage. A `Row` has the facts about one line.

    Some lines compute no graph node, but an address, a mask or a constant. Such a line gets the nodes of the lines that
    use its result.

        i = pid * 4           serves the load: {2}
        x = load(p + i)       {2}
        s = 3                 serves the product: {5}
        y = x * s             {5}

    The function is a backward data-flow analysis, like the analysis of live variables. A line that defines a name gets
    the graph nodes of the lines that use this definition. The function visits the lines twice, from the last line to
    the first, because a loop carries values from one iteration to the next.

    Each name in the set `kept` is defined by more than one line. The names are the variables that a loop updates, and
    `TENSOR`, which stands for tensor memory. If a line uses a name in `kept`, the graph nodes of this line go to all
    earlier lines that define the name.
    """
    needed: dict[str, Nodes] = defaultdict(frozenset)
    found = [NONE] * len(rows)
    for _ in range(2):
        for k, row in reversed(list(enumerate(rows))):
            nodes = own[k]
            found[k] = nodes = NONE.union(*(needed[n] for n in row.defines)) if nodes is None else nodes
            for name in set(row.defines) - kept:
                needed.pop(name, None)
            for name in row.uses:
                needed[name] |= nodes
    return found


# ---- the generated source ---------------------------------------------------------------


def generated_lines(text: str, kernels: Sequence[EmittedKernel], nodes_of: Callable[[Op], Nodes]) -> list[Origin]:
    """Returns the `Origin` (graph nodes and role) of each line of the generated Triton source."""
    ops = line_ops(kernels)
    own = {line: nodes_of(op) for line, op in ops.items()}
    launches = {match[1]: k for k, line in enumerate(text.split("\n"), 1) if (match := re.match(r"# (\w+)\[", line))}
    found: dict[int, Origin] = {}
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef):
            nodes = [node for statement in function.body for node in ast.walk(statement)]
            rows, carried = _rows(nodes)
            lines = [row.lines[0] for row in rows]
            frame = NONE.union(*(own[line] for line in lines if isinstance(ops.get(line), Store)))
            found |= zip(lines, _origins(rows, [own.get(n) for n in lines], carried, frame))
            found |= {n: Origin(frame, WHOLE) for n in (function.lineno, *_whole(nodes)) if n not in own}
            found |= {n: Origin(frame, "") for n in (function.lineno - 1, launches[function.name])}
    return [found.get(k + 1, NOWHERE) for k in range(text.count("\n"))]


def _rows(nodes: Sequence[ast.AST]) -> tuple[list[Row], frozenset[str]]:
    """Returns a `Row` for each statement line, and the names that a loop updates."""
    names = [n for n in nodes if isinstance(n, ast.Name)]
    defined, used = (grouped((n.lineno, n.id) for n in names if isinstance(n.ctx, c)) for c in (ast.Store, ast.Load))
    # In generated source, each statement and each head of a loop or branch has a line of its own.
    lines = sorted({node.lineno for node in nodes if isinstance(node, ast.stmt)})
    looped = {k for n in nodes if isinstance(n, ast.For) for k in range(n.lineno, (n.end_lineno or 0) + 1)}
    inside = {name for line in lines if line in looped for name in defined[line]}
    outside = {name for line in lines if line not in looped for name in defined[line]}
    # A name that is assigned both outside of loops and in a loop is updated by a loop.
    return [Row(True, (n,), tuple(defined[n]), tuple(used[n])) for n in lines], frozenset(inside & outside)


def _whole(nodes: Sequence[ast.AST]) -> Iterator[int]:
    """Yields the numbers of lines that belong to the whole kernel, not to one operation."""
    for node in nodes:
        if isinstance(node, ast.If):  # each branch contains the code of the whole kernel
            yield from (node.lineno, node.orelse[0].lineno - 1)
        elif isinstance(node, ast.Expr):  # no result, such as a wait for an earlier kernel
            yield node.lineno


# ---- Triton's own stages ----------------------------------------------------------------


def machine_lines(machine: MachineCode, stage: str, source: Sequence[Origin]) -> list[Origin]:
    """Returns an `Origin` for each line of one of Triton's own stages: the graph nodes that the line comes from.

    The text of the stage contains all distinct kernels of the program. Above the text of each kernel is a line with the
    kernel's name.
    """
    lines: list[Origin] = []
    source_lines = enumerate(machine.compilation.module_text.split("\n"), 1)
    heads = {line[4:].partition("(")[0]: number for number, line in source_lines if line.startswith("def ")}
    for kernel in machine.kernels:
        text, head, shared = kernel.text(stage), heads[kernel.name], _with_twins(source, kernel, heads)
        rows = sass_rows(text, kernel.disassembly) if stage == "sass" else READERS[stage](text)
        rows = with_tensor_memory(rows, text, head)
        places = [[shared[n - 1].nodes for n in row.lines if head < n <= len(shared)] for row in rows]
        own = [NONE.union(*nodes) if nodes else None for nodes in places]
        frame = shared[head - 1].nodes
        lines += [Origin(frame, ""), *_origins(rows, own, frozenset({TENSOR}), frame)]
    return lines


def _with_twins(source: Sequence[Origin], kernel: KernelCode, heads: Mapping[str, int]) -> list[Origin]:
    """For each source line of a kernel, adds the graph nodes of the same line in all kernels with equal code."""
    made = list(source)
    for k in range(kernel.kernel.source.count("\n")):  # kernels with equal code are compiled only once
        here, *others = (source[heads[name] - 1 + k] for name in (kernel.name, *kernel.twins))
        made[heads[kernel.name] - 1 + k] = Origin(here.nodes.union(*(o.nodes for o in others)), here.how)
    return made
