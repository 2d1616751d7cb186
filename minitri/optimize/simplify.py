"""graph → graph: folds constants, cancels casts, and composes views into one index map.

    %0: f32[N, M] = view x {index = [d1, d0]}
    %1: f32[M, N] = view %0 {index = [d1, d0]}      becomes      x
    %2: f16[M, N] = cast (cast x to f32)            becomes      x, if x is f16

Common subexpressions become one node, because nodes are interned. Dead nodes disappear, because only the nodes that an
output needs are rebuilt. Each rule is a plain function `(Interner, Node) -> Node | None` in `RULES`. The rules are
applied until none of them changes anything.

Rules that change the bits of a result are left out on purpose. For example, `x + 0.0` is not x if x is -0.0, and
`x * 0` is not 0 if x is nan.
"""

from functools import partial, reduce, update_wrapper

from minitri.base import dims, intervals
from minitri.base.dims import Dim
from minitri.base.numpy_array_operations import elementwise
from minitri.base.operators import OPERATORS
from minitri.base.symbolic_minmax import never_negative, where_present
from minitri.base.types import DType, bool_, i64
from minitri.graph import ir, rewrite
from minitri.graph.ir import Apply, Concat, Const, Gather, Graph, Index, Interner, Node, View, axis, axis_symbol, ranges
from minitri.graph.rewrite import Rule, apply_rules, compute, copy, number, rebuild, spread
from minitri.optimize.affine_gathers import affine_gather


def simplify(graph: Graph) -> Graph:
    """Returns the simplified graph, in which no rule applies to any node."""
    return rebuild(graph, lambda i, node, args: _normal(i, copy(i, node, args)))


def _normal(i: Interner, node: Node) -> Node:
    """Applies the simplification rules to a graph node until no rule applies."""
    # No node is rewritten forever, because each rule shrinks an expression or moves a view from an operand to the
    # result.
    return apply_rules(i, node, RULES)


def _normal_view(i: Interner, x: Node, shape: tuple[Dim, ...], index: tuple[Dim, ...]) -> Node:
    return _normal(i, i.view(x, shape, index))


def cast_of_same(i: Interner, node: Node) -> Node | None:
    """Removes a cast that converts x to the dtype that x already has."""
    return node.args[0] if isinstance(node, Apply) and ir.is_copy(node) else None


def cast_of_widening(i: Interner, node: Node) -> Node | None:
    """Merges two successive casts into one if the first cast loses no information. For example, the casts f16 -> f32 ->
    f16 disappear.
    """
    match node:
        case Apply(op="cast", args=(Apply(op="cast", args=(x,)) as inner,)) if holds(inner.dtype, x.dtype):
            if x.dtype.is_integer and inner.dtype.is_float and node.dtype.is_integer and not holds(node.dtype, x.dtype):
                return None  # out of range an integer wraps and a float saturates
            return i.cast(x, node.dtype)
    return None


def cast_of_view(i: Interner, node: Node) -> Node | None:
    """Replaces a cast of a view by a view of a cast, so that casts on both sides of the view can cancel."""
    match node:
        case Apply(op="cast", args=(View() as v,)):
            return i.view(_normal(i, i.cast(v.x, node.dtype)), v.shape, v.index)
    return None


def holds(wide: DType, narrow: DType) -> bool:
    """Checks whether the dtype `wide` can represent every value of the dtype `narrow` exactly."""
    if narrow.kind == "b":
        return wide.kind != "b"
    if narrow.is_float:
        return wide.is_float and wide.bits > narrow.bits
    if wide.is_float:
        return narrow.bits <= {"f16": 8, "bf16": 8, "f32": 16, "f64": 32}[wide.name]
    low, high = narrow.limits
    return wide.kind != "b" and wide.limits[0] <= low and high <= wide.limits[1]


def fold_constants(i: Interner, node: Node) -> Node | None:
    """Evaluates an operation on constants, and replaces the operation by the result. A broadcast constant counts as a
    constant too.
    """
    if not isinstance(node, Apply) or None in map(_constant, node.args):
        return None
    result = elementwise(node.op, node.dtype, [(v.dtype, v.value) for v in map(_constant, node.args) if v is not None])
    return spread(i, i.const(result.astype(node.dtype.numpy).item(), node.dtype), node.shape)


def _constant(node: Node) -> Const | None:
    constant = ir.viewed(node)
    return constant if isinstance(constant, Const) else None


def identity_operand(i: Interner, node: Node) -> Node | None:
    """Replaces `x * 1`, `1 * x`, `x / 1`, `x - 0.0` and `x ** 1` by x. No bit of the result changes."""
    if not (isinstance(node, Apply) and len(node.args) == 2):
        return None
    left, right = node.args
    neutral = {"multiply": 1, "divide": 1, "subtract": 0, "power": 1}.get(node.op)
    if neutral is None or left.dtype != node.dtype:
        return None
    c = _constant(right)
    if c is not None and c.value == neutral and (neutral or str(c.value)[0] != "-"):
        return left
    c = _constant(left)
    return right if node.op == "multiply" and c is not None and c.value == 1 else None


def known_index(i: Interner, node: Node) -> Node | None:
    """Replaces an index expression by a simpler index expression. If an expression contains no axes and no sizes, it
    becomes a constant.
    """
    if isinstance(node, Index):
        expr = _decided(i, node.expr, node.shape)
        if expr.constant is not None and abs(expr.constant) < 2**63:
            return spread(i, i.const(expr.constant, i64), node.shape)
        if expr != node.expr:
            return i.index(node.dtype, node.shape, expr)
    return None


def _decided(i: Interner, expr: Dim, shape: tuple[Dim, ...]) -> Dim:
    """Simplifies an index expression by means of the sizes of axes."""
    ones = {axis_symbol(k): dims.ZERO for k, e in enumerate(shape) if e == 1}  # an index along an axis of size 1 is 0
    # `(i*N + j) // N` is i because j < N
    return where_present(intervals.simplify(expr.substitute(ones), ranges(shape)), shape, i.allows)


def decided_view(i: Interner, node: Node) -> Node | None:
    """Simplifies the index map of a view by means of the extents of axes. For example, an index along an axis of extent
    1 is 0, and `(i*N + j) // N` is i because j < N.
    """
    if isinstance(node, View):
        index = tuple(dims.ZERO if e == 1 else _decided(i, x, node.shape) for x, e in zip(node.index, node.x.shape))
        if index != node.index:
            return i.view(node.x, node.shape, index)
    return None


def identity_view(i: Interner, node: Node) -> Node | None:
    """Replaces a view that moves no element by the array itself."""
    if isinstance(node, View) and node.shape == node.x.shape:
        plain = (x == (dims.ZERO if e == 1 else axis(k)) for k, (x, e) in enumerate(zip(node.index, node.shape)))
        return node.x if all(plain) else None
    return None


def compose_views(i: Interner, node: Node) -> Node | None:
    """Merges a view with its operand if the operand is a view, a gather or an index expression. The merged node has one
    index map, composed of the two old index maps.
    """
    if not isinstance(node, View):
        return None
    env = {axis_symbol(k): expr for k, expr in enumerate(node.index)}
    match inner := node.x:
        case View():
            return i.view(inner.x, node.shape, tuple(x.substitute(env) for x in inner.index))
        case Index():
            return i.index(inner.dtype, node.shape, inner.expr.substitute(env))
        case Gather():
            picks = tuple(_normal(i, i.view(p, node.shape, node.index)) for p in inner.picks)
            return i.gather(inner.x, node.shape, tuple(x.substitute(env) for x in inner.index), picks)
    return None


def gather_of_view(i: Interner, node: Node) -> Node | None:
    """Replaces a gather from a permuted view by a gather from the array itself.

    A gather from a slice or a flipped view of an array is not changed. For an index outside of a view, a gather from
    the view returns the fill value, but a gather from the array may return an element of the array. If a view only
    permutes the axes, an index outside of the view is also outside of the array.
    """
    if isinstance(node, Gather) and isinstance(node.x, View):
        v, axes = node.x, [axis(k) for k in range(node.x.rank)]
        extents = dict(zip(v.index, v.x.shape))
        if len(v.index) == v.rank and [extents.get(a) for a in axes] == [*v.shape]:
            env = {axis_symbol(k): expr for k, expr in enumerate(node.index)}
            return i.gather(v.x, node.shape, tuple(x.substitute(env) for x in v.index), node.picks)
    return None


def single_concat(i: Interner, node: Node) -> Node | None:
    """Removes the empty operands of a concat. A concat of one operand becomes that operand."""
    if isinstance(node, Concat):
        parts = tuple(p for p in node.parts if p.shape[node.axis] != 0) or node.parts[:1]
        if len(parts) == 1:
            return parts[0]
        if len(parts) < len(node.parts):
            return i.concat(node.shape, parts, node.axis)
    return None


def rotated_halves(i: Interner, node: Node) -> Node | None:
    """Replaces a concat that swaps two parts of an array, such as `x[4:]` and `x[:4]`, by a view that rotates the
    array. Because of the view, no element is computed twice.

    For example, `concat((-x[4:], x[:4]))` becomes `where(k < n - 4, -y, y)`, where k is the index, n is the length of
    x, and y is x rotated by 4. If x has n elements, element k of the rotated array y is x[(k + 4) % n].
    """
    if not (isinstance(node, Concat) and len(node.parts) == 2 and node.shape[node.axis].constant):
        return None
    (first, ops), (second, others) = map(cheap_steps, node.parts)
    if not (isinstance(first, View) and isinstance(second, View) and first.x is second.x):
        return None
    k, (left, right), source = axis(node.axis), (p.shape[node.axis] for p in node.parts), second.index

    def moved(place: Dim) -> tuple[Dim, ...]:
        return tuple(d.substitute({axis_symbol(node.axis): place}) for d in source)

    if moved(k + right) != first.index:
        return None
    rotated = _normal_view(i, first.x, node.shape, moved((k + right) % node.shape[node.axis]))
    a, b = (with_steps(i, rotated, steps) for steps in (ops, others))
    if a is b:
        return a
    place = i.index(i64, node.shape, k)
    is_first = i.apply("less", bool_, node.shape, (place, number(i, place, int(left))))
    return compute(i, "where", is_first, a, b)


def with_steps(i: Interner, x: Node, steps: list[Apply]) -> Node:
    """Applies the one-operand operators in the list `steps` to `x`, the last operator of the list first."""
    return reduce(lambda y, step: i.apply(step.op, step.dtype, y.shape, (y,)), reversed(steps), x)


def cheap_steps(x: Node) -> tuple[Node, list[Apply]]:
    """Finds an array y from which cheap operators compute `x`. Returns y and the list of these operators. Every
    operator in the list has one operand. The operator that is applied last comes first in the list.
    """
    steps: list[Apply] = []
    while isinstance(x, Apply) and len(x.args) == 1 and (x.op == "cast" or OPERATORS[x.op].cost == "cheap"):
        steps.append(x)
        x = x.args[0]
    return x, steps


def view_of_concat(i: Interner, node: Node) -> Node | None:
    """Replaces a view that reads only one operand of a concat by a view of that operand. For example,
    `concat((a, b))[:1]` reads only a.
    """
    if not (isinstance(node, View) and isinstance(node.x, Concat)):
        return None
    axis = node.x.axis
    found = intervals.bounds(node.index[axis], ranges(node.shape))
    if found is None:
        return None
    first, last = found
    offset = dims.ZERO
    for part in node.x.parts:
        end = offset + part.shape[axis]
        if not never_negative(first - offset, node.shape, i.allows):
            return None  # the view begins before this part, so no later part contains it
        if never_negative(end - 1 - last, node.shape, i.allows):
            index = (*node.index[:axis], node.index[axis] - offset, *node.index[axis + 1 :])
            return i.view(part, node.shape, index)
        offset = end
    return None


def known_where(i: Interner, node: Node) -> Node | None:
    """Replaces where(True, a, b) by a, and where(False, a, b) by b."""
    if isinstance(node, Apply) and node.op == "where" and (c := _constant(node.args[0])) is not None:
        return node.args[1] if c.value else node.args[2]
    return None


def gather_of_cast(i: Interner, node: Node) -> Node | None:
    """Replaces a gather from a cast by a cast of a gather, so that fewer elements are converted and narrower elements
    are loaded.
    """
    match node:
        case Gather(x=Apply(op="cast", args=(x,))) if x.dtype.is_float and node.dtype.is_float:
            return i.cast(i.gather(x, node.shape, node.index, node.picks), node.dtype)
    return None


# The rules of the legaliser come last. The views that they make are simplified at once.
RULES: tuple[Rule, ...] = (
    cast_of_same, cast_of_widening, cast_of_view, fold_constants, identity_operand,
    known_where, known_index, affine_gather, compose_views, view_of_concat, decided_view, identity_view, gather_of_view,
    gather_of_cast, single_concat, rotated_halves, *(update_wrapper(partial(rule, view=_normal_view), rule) for rule in rewrite.RULES),
)  # fmt: skip
