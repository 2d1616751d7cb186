"""Which nodes each line of the generated Triton source comes from.

In: the text of the triton stage, its kernels, and the nodes of an op. Out: the origin of each line.

    j = tl.arange(0, 512)                      {2, 7}   what it serves: the load and the store
    m5 = j < 300                               {2, 7}
    v0 = tl.load(p0 + j, mask=m5, other=0)     {2}      its op
    tl.store(p1 + j, v3, mask=m5)              {7}

A line that computes an op of the tile program has the op's nodes. An index, a mask or a carried value has the nodes
of the lines that use it. The head of a loop also has the nodes of the lines in the loop. Three kinds of lines have the
nodes that the kernel writes: the head of the function, heads of its branches, and lines that wait.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from minitri.explore.served import NONE, NOWHERE, OWN, SERVES, WHOLE, Nodes, Origin, served
from minitri.kernels.ir import Op, Store
from minitri.triton.emit import EmittedKernel
from minitri.triton.source import line_ops


@dataclass(frozen=True, slots=True)
class _Line:
    number: int  # from 1
    defines: frozenset[str]
    uses: frozenset[str]
    loop: bool  # it stands in one


def generated_lines(text: str, kernels: Sequence[EmittedKernel], nodes_of: Callable[[Op], Nodes]) -> list[Origin]:
    """One for each line of the text."""
    ops = line_ops(kernels)
    own = {line: nodes_of(op) for line, op in ops.items()}
    found: dict[int, Origin] = {}
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef):
            lines = list(_lines(function.body, False))
            nodes = served([(n.defines, n.uses) for n in lines], [own.get(n.number) for n in lines], _carried(lines))
            found |= {n.number: Origin(ns, OWN if n.number in own else SERVES) for n, ns in zip(lines, nodes)}
            written = [own[n.number] for n in lines if isinstance(ops.get(n.number), Store)]
            frame = NONE.union(*written)
            found[function.lineno] = Origin(frame, WHOLE)
            found |= {line: Origin(frame, WHOLE) for line in (*_branches(function), *_waits(function, own))}
            found |= {line: Origin(frame, "") for line in (function.lineno - 1, *_launches(text, function.name))}
    return [found.get(k + 1, NOWHERE) for k in range(text.count("\n"))]


def _launches(text: str, name: str) -> list[int]:
    """The lines of the launch plan that run a kernel."""
    return [k for k, line in enumerate(text.split("\n"), 1) if re.match(rf"# {name}\[", line)]


def _lines(body: Sequence[ast.stmt], loop: bool) -> Iterator[_Line]:
    for statement in body:
        if isinstance(statement, ast.For):
            inner = list(_lines(statement.body, True))
            yield _Line(statement.lineno, _names(statement.target, ast.Store), _names(statement.iter, ast.Load), True)
            yield from inner
        elif isinstance(statement, ast.If):
            yield _Line(statement.lineno, frozenset(), _names(statement.test, ast.Load), loop)
            yield from _lines(statement.body, loop)
            yield from _lines(statement.orelse, loop)
        else:
            yield _Line(statement.lineno, _names(statement, ast.Store), _names(statement, ast.Load), loop)


def _branches(function: ast.FunctionDef) -> Iterator[int]:
    """The lines of `if` and `else`: what stands below either is all of the kernel."""
    for node in ast.walk(function):
        if isinstance(node, ast.If):
            yield from (node.lineno, node.orelse[0].lineno - 1)


def _waits(function: ast.FunctionDef, own: Container[int]) -> Iterator[int]:
    """The lines that do something, but nothing of the program's."""
    yield from (n.lineno for n in ast.walk(function) if isinstance(n, ast.Expr) and n.lineno not in own)


def _carried(lines: Sequence[_Line]) -> frozenset[str]:
    """The names that a loop passes on to its next iteration: defined in it, and before it."""
    inside, before = ({n for line in lines if line.loop == loop for n in line.defines} for loop in (True, False))
    return frozenset(inside & before)


def _names(tree: ast.AST, context: type[ast.expr_context]) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, context))
