"""Rewrites graphs: a general function that rebuilds a graph, and two passes that every program needs.

    %0: f32[M, N] = …                         with M = 1000: f32[1000, N]
    %1: f32[N] = scan.sum x {axis = 0}        x: f32[1]: the scan is x
    %1: f32[M, 1] = contract x, w             a column of a product: multiply and sum

`rebuild` takes a graph and a function that makes a new node from an old node and its new operands. `rebuild` returns a
new graph with a new interner, so equal subexpressions become one node. `rebuild` does not change the old graph. In the
graph that `rebuild` returns, each new node has the source spans of the old node. If an operation is replaced, for
example by a constant, some of its operands can become needless. The node in place of the operation also gets the source
spans of all operands that have become needless.

`specialise` replaces the symbols of known sizes by numbers. If `specialise` replaces the size of an axis by 1, the
index maps keep the symbol of this axis, such as d0. The index maps stay correct, because the only index along an axis
of size 1 is 0.

`legalise` rewrites nodes that kernels cannot compute. A kernel has no axes of extent 1, so a kernel cannot reduce or
scan along an axis of extent 1. In a kernel, a matrix product needs at least two rows and two columns, and at least two
terms in each sum. The pass minitri/optimize/simplify.py applies the rules of `legalise` together with its own rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from minitri.base.dims import ONE, ZERO, Dim, DimLike, Quotient, Remainder, Symbol
from minitri.base.operators import POSITIONS
from minitri.base.pass_logs import fired
from minitri.base.spans import Span
from minitri.base.types import i64
from minitri.graph import ir
from minitri.graph.ir import MAX_SPANS, Graph, Interner, Node, Shape, axis, check_conditions, children

Rule = Callable[[Interner, Node], "Node | None"]
Make = Callable[[Interner, Node, tuple[Node, ...]], Node]
MakeView = Callable[[Interner, Node, Shape, tuple[Dim, ...]], Node]
Sizes = Mapping[Symbol, DimLike]


def rebuild(graph: Graph, make: Make) -> Graph:
    """Returns a new graph. For each node of the old graph, `make(interner, old node, new operands)` makes the node of
    the new graph.
    """
    interner = Interner(graph.conditions)
    new: dict[Node, Node] = {}
    spans: dict[Node, tuple[Span, ...]] = {}
    inputs: tuple[Any, ...] = tuple(make(interner, i, ()) for i in graph.inputs)
    for node in graph.nodes():
        before = len(interner.made)
        interner.place = graph.spans.get(node, ())
        new[node] = make(interner, node, tuple(new[o] for o in children(node)))
        for made in (*interner.made[before:], new[node]):
            spans[made] = _merged(spans.get(made, ()), interner.place)
    made = Graph(graph.name, inputs, tuple(new[o] for o in graph.outputs), graph.conditions, spans)
    _inherit(graph, new, {*made.nodes(), *inputs}, spans)
    return made


def rewritten(graph: Graph, by: Callable[..., Graph], rule: Callable[[Interner, Node, Node], Node | None]) -> Graph:
    """Returns a copy of the graph in which the function `rule` has replaced some nodes.

    The log (minitri/base/pass_logs.py) records that the pass `by` made each replacement.

    The function `rule` takes an interner, the old node and the node's copy in the new graph. If `rule` returns None,
    the new graph keeps the copy of the old node.
    """

    def make(interner: Interner, node: Node, args: tuple[Node, ...]) -> Node:
        made = copy(interner, node, args)
        if (replacement := rule(interner, node, made)) is None:
            return made
        fired(by, made, replacement, interner.place)
        return replacement

    return rebuild(graph, make)


def apply_rules(interner: Interner, node: Node, rules: Sequence[Rule]) -> Node:
    """Applies rules to a node until no rule changes the node. A rule that does not apply to a node returns None."""
    for rule in rules:
        replacement = rule(interner, node)
        if replacement is not None and replacement is not node:
            fired(rule, node, replacement, interner.place)
            return apply_rules(interner, replacement, rules)
    return node


def _inherit(graph: Graph, new: Mapping[Node, Node], needed: set[Node], spans: dict[Node, tuple[Span, ...]]) -> None:
    """Adds the source ranges (spans) of a removed node to the nodes that used the node's result."""
    for node in graph.nodes():
        for operand in children(node):
            gone = new[operand]
            if gone not in needed and gone is not new[node]:
                spans[new[node]] = _merged(spans[new[node]], spans[gone])


def _merged(a: tuple[Span, ...], b: tuple[Span, ...]) -> tuple[Span, ...]:
    """Returns the source ranges (spans) of two nodes, without duplicates and at most `MAX_SPANS` of them."""
    return a if len(a) >= MAX_SPANS else tuple(dict.fromkeys((*a, *b)))[:MAX_SPANS]


def copy(interner: Interner, node: Node, args: tuple[Node, ...], sizes: Sizes = {}) -> Node:
    """Returns a copy of the node with new operands. The argument `sizes` maps the symbols of known sizes to their
    values.
    """
    if isinstance(node, ir.Const):
        return interner.const(node.value, node.dtype)
    new = iter(args)

    def of(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(of, value))
        if isinstance(value, Dim):
            return value.substitute(sizes) if sizes else value
        return next(new) if hasattr(value, "shape") else value

    parts = {f.name: of(getattr(node, f.name)) for f in fields(node)}
    if isinstance(node, (ir.View, ir.Gather, ir.Concat, ir.Scan)):
        parts["dtype"] = args[0].dtype
    if isinstance(node, (ir.View, ir.Gather)):  # an index that divides by a size of 0 belongs to an empty array
        parts["index"] = tuple(ZERO if _divides_by_zero(d) else d for d in parts["index"])
    return interner.node(type(node), *parts.values())


def _divides_by_zero(d: Dim) -> bool:
    return any(isinstance(p, (Quotient, Remainder)) and p.b == 0 for p in d.pairs())


# ---- known sizes; axes of extent 1 --------------------------------------------------------------


def specialise(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Replaces the dimensions named in `sizes` by the integers in `sizes`.

    Raises the CompileError of the first condition that does not hold for `sizes`.
    """
    if not sizes:
        return graph
    still_open = check_conditions(graph.conditions, sizes)
    env: dict[Symbol, Dim] = {Symbol(name): Dim.of(n) for name, n in sizes.items()}
    return replace(rebuild(graph, lambda i, node, args: copy(i, node, args, env)), conditions=still_open)


def legalise(graph: Graph) -> Graph:
    """Returns a graph without reductions and scans over axes of extent 1.

    The new graph also has no matrix products whose row axis, column axis or summed axis has the extent 1.
    """
    return rebuild(graph, lambda i, node, args: apply_rules(i, copy(i, node, args), RULES))


def trivial_reduction(i: Interner, node: Node, view: MakeView = Interner.view) -> Node | None:
    """Removes scans over an axis of extent 1, and removes axes of extent 1 from reductions.

    Returns None if the node has no axis of extent 1 to remove.
    """
    if isinstance(node, ir.Scan) and node.shape[node.axis] == 1:
        return node.x
    if not isinstance(node, ir.Reduce) or not any(node.x.shape[k] == 1 for k in node.axes):
        return None
    if node.op in POSITIONS:
        return spread(i, i.const(0, i64), node.shape)
    gone = [k for k in node.axes if node.x.shape[k] == 1]
    kept = [k for k in range(node.x.rank) if k not in gone]
    index = tuple(ZERO if k in gone else axis(kept.index(k)) for k in range(node.x.rank))
    x = view(i, node.x, tuple(node.x.shape[k] for k in kept), index)
    axes = tuple(kept.index(k) for k in node.axes if k not in gone)
    return i.reduce(node.op, x, axes) if axes else x


def thin_contract(i: Interner, node: Node, view: MakeView = Interner.view) -> Node | None:
    """Replaces a matrix product by a multiplication and a sum, if the product has only one row or one column. A product
    whose summed axis has the length 1 is replaced, too.
    """
    if not (isinstance(node, ir.Contract) and ONE in (node.a.shape[-2], node.b.shape[-1], node.a.shape[-1])):
        return None
    rank = node.rank
    batch = tuple(axis(k) for k in range(rank - 2))
    m, n, k = axis(rank - 2), axis(rank - 1), axis(rank)
    shape = (*node.shape, node.a.shape[-1])
    a = view(i, i.cast(node.a, node.dtype), shape, (*batch, m, k))
    b = view(i, i.cast(node.b, node.dtype), shape, (*batch, k, n))
    return i.reduce("sum", i.apply("multiply", node.dtype, shape, (a, b)), (rank,))


def spread(i: Interner, constant: Node, shape: Shape) -> Node:
    """Returns an array of the shape `shape`. Every element of the array is the constant."""
    return constant if shape == () else i.view(constant, shape, ())


def number(i: Interner, like: Node, value: float | bool) -> Node:
    """Returns an array with the dtype and shape of `like`. Every element of the array is `value`."""
    return spread(i, i.const(value, like.dtype), like.shape)


def compute(i: Interner, name: str, *args: Node) -> Node:
    """Applies an elementwise operator to the operands `args`. The result has the dtype and the shape of the last
    operand.
    """
    return i.apply(name, args[-1].dtype, args[-1].shape, args)


RULES = (trivial_reduction, thin_contract)
