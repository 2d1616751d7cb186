"""graph → graph: replaces powers with a constant exponent, divisions by powers of two, and `tanh(softplus(x))` by
cheaper operations.

    %1: f32[N] = power x, 3.0        becomes      %1: f32[N] = square x
                                                  %2: f32[N] = multiply %1, x
    %1: f32[N] = divide x, 8.0       becomes      %1: f32[N] = multiply x, 0.125
    tanh(softplus(x))                becomes      a quotient of sums of exp(x), without tanh and log

Strength reduction replaces an operation by a cheaper operation with the same result. The power function of the math
library takes about a hundred instructions, because it must work for every exponent.

A power is replaced if its exponent is an integer from -7 to 8, or a multiple of 0.5 from -4.5 to 7.5:

    x ** 5       square(square(x)) * x       binary powers: Knuth, The Art of Computer Programming 2, 4.6.3
    x ** -5      1 / x**2 * (1 / x**3)       1 / x**5 would be 0 where x**5 overflows and the result is denormal
    x ** 1.5     x * sqrt(x)                 with where(x == -inf, inf, x + 0) for x, since IEEE 754 wants
                                             -inf ** 0.5 = inf and -0.0 ** 0.5 = 0

Each multiplication in the new expression for a power rounds once. The exponents of replaced powers lie between -7 and
8, so at most eight roundings are needed. Each rounding causes an error of at most half a unit in the last place, so the
error of eight roundings is at most 4 units. The math library's power function has an error of up to 4 units in the last
place, too (`ulp` in minitri/base/operators.toml). Integer products wrap around on overflow, as integer powers do. The
multiplication that replaces a division by a power of two gives the same bits, because both operations round the same
number once. In `tanh(softplus(x))`, a part of the activation function mish, tanh is written as a quotient: `tanh(y) =
(exp(2*y) - 1) / (exp(2*y) + 1)`. To avoid overflow, the numerator and the denominator of the quotient for
`tanh(softplus(x))` are divided by exp(2 * max(x, 0)). The quotient for `tanh(softplus(x))` adds only positive terms, so
no digits cancel.
"""

import math

from minitri.base.symbolic_minmax import never_negative
from minitri.base.types import bool_
from minitri.graph.ir import Apply, Const, Graph, Index, Interner, Node, Reduce, View, viewed
from minitri.graph.rewrite import Rule, apply_rules, compute, copy, number, rebuild

LARGEST_DIVISOR = 2.0**100  # its reciprocal is no denormal number


def reduce_strength(graph: Graph) -> Graph:
    """Returns the graph after all rules have been applied as often as possible."""
    return rebuild(graph, lambda i, node, args: apply_rules(i, copy(i, node, args), RULES))


def power_of_constant(i: Interner, node: Node) -> Node | None:
    """Replaces `x ** n` by products, reciprocals and at most one square root."""
    match node:
        case Apply(op="power", args=(x, View(x=Const(value=n)) | Const(value=n))):
            pass
        case _:
            return None
    if n == 0:
        return number(i, node, 1)
    least = -7 if node.dtype.is_float else 1  # integers have no reciprocals
    if float(n).is_integer():
        return _power(i, x, int(n)) if least <= n <= 8 else None
    if not (2 * float(n)).is_integer() or not -4.5 <= n <= 7.5:
        return None
    x = x if _never_negative(i, x) or _is_whole(x) else _without_signs(i, x)
    root = compute(i, "sqrt", x)
    root = root if n > 0 else compute(i, "reciprocal", root)
    return _product(i, root, _power(i, x, int(n))) if abs(n) > 1 else root


def _never_negative(i: Interner, x: Node, depth: int = 6) -> bool:
    """Checks whether each element of x is certainly 0.0, positive, or nan."""
    match x:
        case Const(value=c):
            return c > 0 or str(c) == "0.0"
        case Index(expr=expr):
            return never_negative(expr, x.shape, i.allows)
        case Apply(op="abs" | "square" | "exp" | "exp2" | "sigmoid"):
            return True
        case Apply(op="multiply", args=(a, b)) if a is b:
            return True
        case View(x=inner) | Reduce(op="sum" | "max" | "min", x=inner):
            operands: tuple[Node, ...] = (inner,)
        case Apply(op="add" | "multiply" | "divide" | "sqrt" | "cast", args=operands):
            pass
        case _:
            return False
    return depth > 0 and all(_never_negative(i, o, depth - 1) for o in operands)  # at most `depth` levels of operands


def _is_whole(x: Node) -> bool:
    """Checks whether the elements of x are converted from integers."""
    # such elements are never -0.0 or -inf
    x = viewed(x)
    return isinstance(x, Apply) and x.op == "cast" and x.args[0].dtype.is_integer


def _without_signs(i: Interner, x: Node) -> Node:
    """Returns x with 0 in place of -0.0 and inf in place of -inf."""
    # a power with a fractional exponent ignores these signs
    is_lowest = i.apply("equal", bool_, x.shape, (x, number(i, x, -math.inf)))
    return compute(i, "where", is_lowest, number(i, x, math.inf), compute(i, "add", x, number(i, x, 0.0)))


def _power(i: Interner, x: Node, n: int) -> Node:
    """Returns `x ** n` as a product of repeated squares."""
    if n == 1:
        return x
    if n == -1:
        return compute(i, "reciprocal", x)
    if n < 0:
        # `x ** -5` becomes `(1 / x**2) * (1 / x**3)`: `x**5` could overflow although `x ** -5` is not 0
        halves = (compute(i, "reciprocal", _power(i, x, k)) for k in (-n // 2, -n - -n // 2))
        return _product(i, *halves)
    half = compute(i, "square", _power(i, x, n // 2))
    return _product(i, half, x) if n % 2 else half


def _product(i: Interner, a: Node, b: Node) -> Node:
    return compute(i, "square", a) if a is b else compute(i, "multiply", a, b)


def division_by_power_of_two(i: Interner, node: Node) -> Node | None:
    """Replaces `x / 2**k` by `x * 2**-k`. Both expressions give the same bits. If x is the result of a reduction, such
    as a sum, the function changes nothing. Online reductions recognise a mean only by the division of a sum.
    """
    match node:
        case Apply(op="divide", args=(Reduce() | View(x=Reduce()), _)):
            return None
        case Apply(op="divide", args=(x, View(x=Const(value=c)) | Const(value=c))) if _is_power_of_two(float(c)):
            return _product(i, x, number(i, node, 1 / float(c)))
    return None


def _is_power_of_two(c: float) -> bool:
    return 1 / LARGEST_DIVISOR <= abs(c) <= LARGEST_DIVISOR and abs(math.frexp(c)[0]) == 0.5


def tanh_of_softplus(i: Interner, node: Node) -> Node | None:
    """Replaces `tanh(softplus(x))`, a part of the activation function mish, by a quotient of exponentials. The quotient
    is `a / (a + 2 * q**2)`. In the quotient, a is `p * (p + 2 * q)`, p is `exp(min(x, 0))`, and q is `exp(-max(x, 0))`.
    In the graph, softplus is `maximum(x, 0) + log1p(exp(-abs(x)))`.
    """
    match node:
        case Apply(op="tanh", args=(Apply(op="add", args=(Apply(op="maximum", args=(x, zero)) as upper, rest)),)):
            pass
        case _:
            return None
    log = compute(i, "log1p", compute(i, "exp", compute(i, "negative", compute(i, "abs", x))))
    if rest is not log or zero is not number(i, x, 0.0):
        return None
    p, q = compute(i, "exp", compute(i, "minimum", x, zero)), compute(i, "exp", compute(i, "negative", upper))
    two = number(i, x, 2.0)
    above = compute(i, "multiply", p, compute(i, "add", p, compute(i, "multiply", two, q)))
    below = compute(i, "multiply", two, compute(i, "square", q))
    return compute(i, "divide", above, compute(i, "add", above, below))


RULES: tuple[Rule, ...] = (power_of_constant, division_by_power_of_two, tanh_of_softplus)
