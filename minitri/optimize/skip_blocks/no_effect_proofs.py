"""Proves that an iteration of a loop leaves all carried values unchanged.

    for r {                                        r where i >= r fails for the whole block:
      %x = where i >= r, load x[i, r], -inf          %x is -inf
      %b = reduce.max %x                             %b is -inf
      next %m = maximum %m, %b                       %m, whatever it is
      next %s = … * exp(%m - next) + sum exp(…)      %s * 1 + 0, while %m is finite
    }

The function `unchanged` takes a loop and the ops before the loop. The argument `assumed` has assumptions about some ops
of the loop, for example that a condition fails. For each value that the loop carries to its next iteration, `unchanged`
returns the reason why the value does not change. If there is no proof, the function `unchanged` returns None. The proof
evaluates one iteration of the loop under the assumptions passed to `unchanged`
(optimize/skip_blocks/abstract_values.py). The proof succeeds if each value that the loop carries is the same before and
after the iteration.

If the running maximum changes from m to m', an online sum is multiplied by exp(m - m')
(minitri/optimize/online_reductions/lower.py). If the maximum m does not change, the sum is multiplied by exp(m - m).
The factor exp(m - m) is 1 for a finite m and nan for any other m. The proof treats each kind of value of the running
maximum m, such as finite or -inf, as a separate case. For a running maximum that is infinite or nan, induction over the
iterations proves that the online sum is 0 or nan:

    m is -inf          the sum is 0 or nan: the sum starts at 0, and an element -inf adds 0
    m is inf or nan    the sum is nan: the element that made m inf or nan adds nan to the sum

If one factor of a product contains only zeros, the product does not read the other factor. A product with a factor of
zeros does not change the sum that the product is added to (docs/reference/semantics.md).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minitri.base.operators import POSITIONS, neutral, reduction
from minitri.kernels.ir import Carry, Compute, Constant, Dot, Op, Reduce, Spread, needed
from minitri.optimize.skip_blocks import abstract_values as abstract
from minitri.optimize.skip_blocks.abstract_values import BOTTOM, FINITE, NAN, TOP, ZERO, Value, constant, free
from minitri.tiles.ir import Loop

Known = Mapping[Any, Value]


class Update(NamedTuple):
    """One value that a loop carries: the op `carry` is the value before an iteration, and `following` the value after
    it.
    """

    carry: Carry
    following: Op


def unchanged(loop: Loop, before: Sequence[Op], assumed: Known) -> tuple[str, ...] | None:
    """For each carried value, returns the reason why an iteration leaves this value unchanged. The argument `assumed`
    maps ops to what is assumed about their values, for example that a condition is false.

    Returns None if the iteration could change a carried value.
    """
    proof = _Proof(loop, before, assumed)
    reasons = [proof.reason(Update(*u)) for u in loop.carries]
    return None if None in reasons or not reasons else tuple(r for r in reasons if r is not None)


class _Proof:
    """Proves that an iteration of a loop leaves the loop-carried values unchanged."""

    def __init__(self, loop: Loop, before: Sequence[Op], assumed: Known) -> None:
        # `assumed` maps ops to what is assumed about their values, and `before` has the ops before the loop
        self.loop, self.assumed = loop, assumed
        self.before = {op: constant(op.value, op.dtype) if isinstance(op, Constant) else free(op) for op in before}

    def reason(self, update: Update) -> str | None:
        if self._stays(update, {}):
            return _reason(update)
        maxima = [y for y in self._maxima() if y.carry in needed(update.following) and y.carry is not update.carry]
        if any(self._stays_with(update, y) for y in maxima):
            return f"{_reason(update).partition(':')[0]}: {FOLLOWS}"
        return None

    def _stays(self, update: Update, known: Known) -> bool:
        after = _Iteration(self.loop, {**self.before, **self.assumed, **known}).values
        was, now = after[update.carry], after[update.following]
        return now.term == was.term or was.is_nan and now.is_nan

    # ---- sums that follow a maximum ----------------------------------------------------------

    def _maxima(self) -> list[Update]:
        """Returns the loop-carried values that are running maxima."""
        # A running maximum starts at -inf, and each iteration takes the maximum of the old value and the new elements.
        found = [Update(c, n) for c, n in self.loop.carries if _starts_at(c, float("-inf"))]
        return [u for u in found if _own_maximum(u) is not None and self._stays(u, {})]

    def _stays_with(self, update: Update, y: Update) -> bool:
        """Checks whether an iteration leaves a sum unchanged, for any value of a running maximum."""
        return all(self._stays_in(update, y, frozenset(kinds)) for kinds in ({BOTTOM}, {TOP}, {NAN}, FINITE))

    def _stays_in(self, update: Update, y: Update, kinds: frozenset[str]) -> bool:
        known = {y.carry: free(y.carry, kinds)}
        if self._stays(update, known):
            return True
        stays = {k: self._stays(update, {**known, update.carry: free(update.carry, {k})}) for k in (ZERO, NAN)}
        if kinds == {BOTTOM}:
            return all(stays.values()) and self._is_zero_or_nan(update, y)
        if kinds == {TOP}:
            return stays[NAN] and self._is_nan_after_inf(update, y)
        # Once the maximum is nan, each term of the sum is nan.
        return stays[NAN] and kinds == {NAN} and self._after(update, {y.following: free(y.carry, {NAN})}).is_nan

    def _after(self, update: Update, known: Known, some: bool = False) -> Value:
        """Returns the possible values of a sum after one iteration of the loop."""
        # `known` maps ops to what is assumed about their values in one iteration
        return _Iteration(self.loop, {**self.before, **known}, some, runs=True).values[update.following]

    def _is_zero_or_nan(self, update: Update, y: Update) -> bool:
        """Checks whether a sum can only be 0 or nan while the running maximum is -inf."""
        bottom, own = free(y.carry, {BOTTOM}), _own_maximum(y)
        assert own is not None
        # By induction: the sum is 0 at the start of the loop, and after an iteration whose elements are all -inf, the
        # sum is still 0 or nan.
        known = {y.carry: bottom, own.x: bottom, update.carry: free(update.carry, {ZERO, NAN})}
        return _starts_at(update.carry, 0) and self._after(update, known).kinds <= {ZERO, NAN}

    def _is_nan_after_inf(self, update: Update, y: Update) -> bool:
        """Checks whether a sum must be nan as soon as the running maximum is inf."""
        top, own = free(y.carry, {TOP}), _own_maximum(y)
        assert own is not None
        if {*own.over} & {*update.carry.axes}:
            return False  # the sum has further axes, so some of its elements may not include the element inf
        # two cases: the iteration in which the maximum becomes inf, and all later iterations
        known = {y.carry: free(y.carry, FINITE | {BOTTOM, TOP}), own: top, own.x: top}
        later = {y.carry: top, y.following: top, update.carry: free(update.carry, {NAN})}
        return self._after(update, known, some=True).is_nan and self._after(update, later).is_nan


PRODUCT = "product: a factor is zero"
FOLLOWS = "follows a maximum m: x * exp(m - m) + 0 is x; while m is -inf x is 0, once m is inf or nan x is nan"


def _reason(update: Update) -> str:
    """Returns a text that says why an op leaves a loop-carried value unchanged."""
    op = update.following
    return abstract.KNOWN.get(op.op, {}).get("unchanged", "it stays") if isinstance(op, Compute) else PRODUCT


def _starts_at(carry: Carry, value: float) -> bool:
    return isinstance(carry.initial, Constant) and carry.initial.value == value


def _own_maximum(update: Update) -> Reduce | None:
    """Returns the `max` op of one iteration if a loop-carried value is a running maximum."""
    op = update.following
    if not isinstance(op, Compute) or op.op != "maximum" or update.carry not in op.args:
        return None
    return next((a for a in op.args if isinstance(a, Reduce) and a.op == "max"), None)


class _Iteration:
    """Evaluates one iteration of a loop. The values of some operations are assumed instead of computed."""

    def __init__(self, loop: Loop, known: Known, some: bool = False, runs: bool = False) -> None:
        # `some`: the assumptions can hold for only some elements of a block. `runs`: the iteration certainly runs, so
        # each product reads both factors.
        self.terms, self.some, self.runs = abstract.Terms(), some, runs
        self.values: dict[Op, Value] = dict(known)
        for op in loop.body:
            if op not in known:  # an op with an assumed value is not computed
                self.values[op] = self._evaluated(op)

    def _evaluated(self, op: Op) -> Value:
        match op:
            case Compute():
                return abstract.computed(op, [self.values[a] for a in op.args], self.terms)
            case Spread():
                return self.values[op.x]
            case Constant():
                return constant(op.value, op.dtype)
            case Reduce():
                return self._reduced(op, self.values[op.x])
            case Dot() if op.acc is not None:
                return self._product(op, self.values[op.a], self.values[op.b], self.values[op.acc])
        return free(op)

    def _reduced(self, op: Reduce, x: Value) -> Value:
        if op.index is not None or op.rescale is not None or op.shift is not None or op.op in POSITIONS:
            return free(op)
        if x.is_nan or self.some:
            return free(op, {NAN} if x.is_nan else None)
        kind = reduction(op.op).kind
        if x.number and (kind in ("extreme", "logical") or x.is_number(neutral(op.op, op.dtype))):
            return constant(x.number[0], op.dtype)
        picks = kind == "extreme" or kind == "sum" and x.kinds <= {ZERO, NAN}
        return free(op, x.kinds if picks else None)

    def _product(self, op: Dot, a: Value, b: Value, acc: Value) -> Value:
        zeros = not self.some and (a.is_number(0) or b.is_number(0))
        if zeros and not self.runs:
            return acc
        if a.is_nan or b.is_nan or acc.is_nan:
            return free(op, {NAN})
        return free(op, {ZERO, NAN} if zeros and acc.kinds <= {ZERO, NAN} else None)
