"""Writes one element of a reduction's operand as an expression (scalar form). The expression contains no views: it
reads elements of the viewed arrays.

    %5: f32[M, N] = view %4 {index = [d0]}          the element (d0, d1) of %6
    %6: f32[M, N] = subtract x, %5                  is x at (d0, d1), minus %4 at (d0)

The class `GraphTerms` takes the operand of a reduction and the reduced axes. The class turns the operand into an
expression for one element. The method `needs` lists the inner reductions that run over the same axes as the outer
reduction. Reductions over the same axes can often be computed together in one loop (online reductions). To decide
whether one loop can compute several reductions, minitri/graph/partial_sum_correction.py reads the expression. An
`Element` represents one subexpression of the operand: a graph node, and the index of one element of this node. The
function `build` turns an expression into graph nodes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minitri.base.dims import ZERO, Dim, Symbol, product
from minitri.graph.ir import Apply, Gather, Interner, Node, Reduce, Shape, View, axis, axis_symbol, postorder
from minitri.graph.partial_sum_correction import Reduced, Refused, Rescale, Shift, Terms, above, transport

Axes = Mapping[Symbol, Dim]


class Element(NamedTuple):
    """One element of the array that a graph node computes. The tuple `at` is the index of the element: one index
    expression for each axis of the node.
    """

    node: Node
    at: tuple[Dim, ...]


def element(node: Node, index: tuple[Dim, ...]) -> Element:
    """Returns the element at the position `index` of the array that `node` computes.

    For a view, returns the element of the viewed array that the view reads.
    """
    while isinstance(node, View):
        env: Axes = {axis_symbol(k): d for k, d in enumerate(index)}
        node, index = node.x, tuple(d.substitute(env) for d in node.index)
    return Element(node, tuple(ZERO if extent == 1 else d for d, extent in zip(index, node.shape)))


class GraphTerms(Terms[Element]):
    """Reads the operand `x` of a reduction over `axes` as an expression for one element.

    `cut`: for each node that replaces a reduction in the expression, the replaced reduction.
    `permuted`: if true, the operand of an inner reduction may have its axes in another order than `x`. If
        `permuted` is true, the operand may also have other axes of extent 1 than `x`.
    """

    def __init__(self, x: Node, axes: tuple[int, ...], cut: Mapping[Node, Reduce] = {}, permuted: bool = False) -> None:
        self.x, self.axes, self.cut, self.permuted = x, axes, cut, permuted
        self.kept = tuple(k for k in range(x.rank) if k not in axes)
        self.reduced = {axis_symbol(k) for k in axes}
        self.root = element(x, tuple(axis(k) for k in range(x.rank)))
        self.count = product([x.shape[k] for k in axes])

    def look(self, e: Element) -> tuple[str, tuple[Element, ...]]:
        """Returns the name of the operation that computes an element, and the operands of this operation.

        For a reduction that loops over the same indices as the reduction of `x`, returns "" and an empty tuple.
        """
        node = e.node
        match node:
            case Apply(op="cast", args=(x,)) if not x.dtype.is_computed_as(node.dtype):
                return "conversion", (element(x, e.at),)
            case Apply():
                return node.op, tuple(element(a, e.at) for a in node.args)
            case Gather():
                return "gather", tuple(element(p, e.at) for p in node.picks)
        return type(node).__name__.lower() if self.places(e) is None else "", ()

    def below(self, root: Element) -> list[Element]:
        """Returns `root` and its direct and indirect operands. Each operand comes before the elements that use the
        operand.
        """
        return postorder([root], lambda e: self.look(e)[1])

    def varies(self, e: Element) -> bool:
        """Checks whether an element depends on the position along the reduced axes."""
        indexed = (p for p in self.below(e) if isinstance(p.node, Gather) or not self.look(p)[1])
        return any(s in self.reduced for p in indexed for d in p.at for s in d.symbols())

    def made_by(self, e: Element) -> Node:
        return e.node

    def needs(self, root: Element | None = None) -> list[Reduced[Element]]:
        """Returns the reductions inside the expression. Each returned reduction loops over the same indices as the
        reduction of `x`.

        If `root` is given, returns only the reductions in the subexpression `root`.
        """
        found = [(e, self.cut.get(e.node, e.node), self.places(e)) for e in self.below(root or self.root)]
        return [Reduced(e, y.op, element(y.x, at)) for e, y, at in found if at is not None and isinstance(y, Reduce)]

    def transport(self, root: Element, needs: Sequence[Reduced[Element]]) -> Rescale[Element] | Shift[Element] | None:
        """Returns the correction that a partial sum of `root` needs when a running maximum or mean inside `root`
        changes.

        Example: when a running maximum grows from m to n, a partial sum of exp(x - m) is multiplied by exp(m - n).
        Returns None if no correction is possible.
        """
        try:
            return transport(self, root, needs)
        except Refused:
            return None

    def places(self, e: Element) -> tuple[Dim, ...] | None:
        """If `e` is the result of a reduction, returns the index at which the reduction reads its operand.

        The returned index uses the symbols d0, d1, … of the axes of `x`. Returns None if no reduction computes the
        element `e`. Returns None if the reduction does not loop over the same indices as the reduction of `x`. If
        `permuted` is false, also returns None if the two reductions have different axes or operands of different
        shapes.
        """
        node = self.cut.get(e.node, e.node)
        if not isinstance(node, Reduce) or len(node.axes) != len(self.axes):
            return None
        kept = iter(e.at)
        reduced = {k: axis(a) for k, a in zip(node.axes, self.axes)}
        at = tuple(reduced[k] if k in reduced else next(kept) for k in range(node.x.rank))
        ours = {axis(k): n for k, n in enumerate(self.x.shape) if n != 1 or k in self.axes}
        theirs = {d: n for d, n in zip(at, node.x.shape) if d != ZERO}
        plain = ours == theirs and len(theirs) == sum(d != ZERO for d in at)
        aligned = node.axes == self.axes and node.x.shape == self.x.shape and list(theirs) == list(ours)
        return at if plain and (self.permuted or aligned) else None


def deviations(node: Reduce) -> tuple[Reduce, Reduce] | None:
    """For a sum of (x - mean(x)) * (y - mean(y)), returns the reductions that compute sum(x) and sum(y).

    Returns None for any other reduction.
    """
    terms = GraphTerms(node.x, node.axes)
    if node.op != "sum" or terms.look(terms.root)[0] not in ("square", "power", "multiply"):
        return None
    found = terms.transport(terms.root, terms.needs())
    if not isinstance(found, Shift):
        return None
    first, second = (m.y.y.node for m in found.means)
    assert isinstance(first, Reduce) and isinstance(second, Reduce)
    return first, second


def build(
    i: Interner, terms: GraphTerms, root: Element, shape: Shape, axes: Axes, given: Mapping[Element, Node]
) -> Node:
    """Returns a node with the shape `shape` that computes the expression `root`.

    The argument `axes` maps each axis symbol of the expression, such as d0, to the index that replaces the symbol. The
    argument `given` maps some elements to existing nodes that compute these elements.
    """
    depending = above(terms, root, given)
    made: dict[Element, Node] = dict(given)

    def operands(e: Element) -> tuple[Element, ...]:
        return terms.look(e)[1] if e in depending and e not in given else ()

    for e in postorder([root], operands):
        if e not in made:
            made[e] = _one(i, e, shape, axes, tuple(made[o] for o in operands(e)))
    return made[root]


def _one(i: Interner, e: Element, shape: Shape, axes: Axes, args: tuple[Node, ...]) -> Node:
    """Returns a graph node of the given shape for a subexpression."""
    index = tuple(d.substitute(axes) for d in e.at)
    if args and isinstance(e.node, Gather):
        where: Axes = {axis_symbol(k): d for k, d in enumerate(index)}
        return i.gather(e.node.x, shape, tuple(d.substitute(where) for d in e.node.index), args)
    if args:  # the nodes of the operands
        assert isinstance(e.node, Apply)
        return i.apply(e.node.op, e.node.dtype, shape, args)
    whole = e.node.shape == shape and all(n == 1 or d == axis(k) for k, (d, n) in enumerate(zip(index, shape)))
    return e.node if whole else i.view(e.node, shape, index)
