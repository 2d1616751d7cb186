"""Rebuilding a graph bottom up: the machinery that graph passes share.

In: a graph and a function that makes a new node from an old one and its new operands. Out: a
new graph over a fresh interner (so common subexpressions meet), each new node carrying the
source spans of the node it came from. What a node became that nothing needs any longer (a view
inside a view, a constant that was folded) is part of what its users became: they take its spans.
Never mutates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from minitri.base.dims import ZERO, Dim, DimLike, Pair, Quotient, Remainder, Symbol
from minitri.base.logs import fired, place
from minitri.base.spans import Span
from minitri.graph import ir
from minitri.graph.ir import MAX_SPANS, Condition, Graph, Input, Interner, Node, Shape, operands

Rule = Callable[[Interner, Node], "Node | None"]
Make = Callable[[Interner, Node, tuple[Node, ...]], Node]
Sizes = Mapping[Symbol, DimLike]


def rebuild(graph: Graph, make: Make, conditions: tuple[Condition, ...] | None = None) -> Graph:
    interner = Interner(graph.conditions)
    new: dict[Node, Node] = {}
    spans: dict[Node, tuple[Span, ...]] = {}
    inputs = tuple(_input(make(interner, i, ())) for i in graph.inputs)
    for node in graph.nodes():
        before = len(interner.made)
        place(graph.spans.get(node, ()))
        new[node] = make(interner, node, tuple(new[o] for o in operands(node)))
        for made in (*interner.made[before:], new[node]):
            spans[made] = _merged(spans.get(made, ()), graph.spans.get(node, ()))
    outputs = tuple(new[o] for o in graph.outputs)
    kept = graph.conditions if conditions is None else conditions
    made = Graph(graph.name, inputs, outputs, kept, spans)
    _inherit(graph, new, {*made.nodes(), *inputs}, spans)
    return made


def apply_rules(interner: Interner, node: Node, rules: Sequence[Rule]) -> Node:
    """The node after all rules, each applied until none fires. A rule returns None where it does not fit."""
    while True:
        for rule in rules:
            better = rule(interner, node)
            if better is not None and better is not node:
                fired(rule, node, better)
                node = better
                break
        else:
            return node


def _inherit(graph: Graph, new: Mapping[Node, Node], needed: set[Node], spans: dict[Node, tuple[Span, ...]]) -> None:
    """Spans of nodes that came to nothing go to their users."""
    for node in graph.nodes():
        for operand in operands(node):
            gone = new[operand]
            if gone not in needed and gone is not new[node]:
                spans[new[node]] = _merged(spans[new[node]], spans[gone])


def _merged(a: tuple[Span, ...], b: tuple[Span, ...]) -> tuple[Span, ...]:
    """The places of both; a node that thousands of places share keeps the first few."""
    return a if len(a) >= MAX_SPANS else tuple(dict.fromkeys((*a, *b)))[:MAX_SPANS]


def _input(node: Node) -> Input:
    assert isinstance(node, Input)
    return node


def copy(interner: Interner, node: Node, args: tuple[Node, ...], sizes: Sizes = {}) -> Node:
    """The same node over new operands, with sizes substituted."""

    def sub(dims: tuple[Dim, ...]) -> Shape:
        return tuple(d.substitute(sizes) for d in dims) if sizes else dims

    def place(node: ir.View | ir.Gather) -> tuple[Dim, ...]:
        """The index of a view. No element is read where it would divide by a size of 0."""
        return tuple(ZERO if _divides_by_zero(d) else d for d in sub(node.index))

    match node:
        case Input():
            return interner.input(node.name, node.dtype, sub(node.shape), node.scalar)
        case ir.Const():
            return interner.const(node.value, node.dtype)
        case ir.Index():
            return interner.index(node.dtype, sub(node.shape), node.expr.substitute(sizes))
        case ir.Apply():
            return interner.apply(node.op, node.dtype, sub(node.shape), args)
        case ir.View():
            return interner.view(args[0], sub(node.shape), place(node))
        case ir.Gather():
            return interner.gather(args[0], sub(node.shape), place(node), args[1:])
        case ir.Concat():
            return interner.concat(sub(node.shape), args, node.axis)
        case ir.Reduce():
            return interner.reduce(node.op, node.dtype, sub(node.shape), args[0], node.axes)
        case ir.Scan():
            return interner.scan(node.op, args[0], node.axis)
        case ir.Contract():
            return interner.contract(node.dtype, sub(node.shape), args[0], args[1], node.precision)


def _divides_by_zero(d: Dim) -> bool:
    pairs = [a for a in d.atoms() if isinstance(a, Pair)]
    divided = any(isinstance(p, (Quotient, Remainder)) and p.b == 0 for p in pairs)
    return divided or any(_divides_by_zero(part) for p in pairs for part in (p.a, p.b))
