"""Proves that an iteration of a loop leaves all carried values unchanged.

    for r {                                        r where i >= r fails for the whole block:
      %x = where i >= r, load x[i, r], -inf          %x is -inf
      %b = reduce.max %x                             %b is -inf
      next %m = maximum %m, %b                       %m, whatever it is
      next %s = … * exp(%m - next) + sum exp(…)      %s * 1 + 0, while %m is finite
    }

In: a loop, the ops before it, and assumptions about some of its ops (a condition that fails). Out: for each carried
value the reason why it does not change, or None without a proof. The proof evaluates one iteration with these
assumptions (optimize/skip_blocks/abstract_values.py). Each carried value must be the same after the iteration.

An online sum is multiplied by exp(m - m') when its running maximum changes from m to m'
(minitri/optimize/online_reductions/lower.py). If m stays the same, this is exp(m - m): 1 for a finite m, else nan. So
the proof distinguishes the cases of m. Two cases need a fact about the sum, proven by induction over the iterations:

    m is -inf          the sum is 0 or nan: it starts at 0, and terms of -inf add 0
    m is inf or nan    the sum is nan: the element that made m inf or nan has a term that is nan

If a factor of a product is all zeros, the product leaves its sum unchanged, because it does not read the other factor
(docs/reference/semantics.md).
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
    """A carried value, and its value after an iteration."""

    carry: Carry
    following: Op


def unchanged(loop: Loop, before: Sequence[Op], assumed: Known) -> tuple[str, ...] | None:
    """For each carried value, the reason why an iteration does not change it. `assumed` holds in the iteration.

    None if the iteration may change a carried value.
    """
    proof = _Proof(loop, before, assumed)
    reasons = [proof.reason(Update(*u)) for u in loop.carries]
    return None if None in reasons or not reasons else tuple(r for r in reasons if r is not None)


class _Proof:
    """Proofs about one loop under the assumptions `assumed`. `before` contains the ops before the loop."""

    def __init__(self, loop: Loop, before: Sequence[Op], assumed: Known) -> None:
        self.loop, self.assumed = loop, assumed
        self.before: dict[Op, Value] = {
            op: constant(op.value, op.dtype) if isinstance(op, Constant) else free(op) for op in before
        }

    def reason(self, update: Update) -> str | None:
        if self._stays(update, {}):
            return _reason(update)
        maxima = [y for y in self._maxima() if y.carry in needed(update.following) and y.carry is not update.carry]
        if any(self._stays_with(update, y) for y in maxima):
            return f"{_reason(update).partition(':')[0]}: {FOLLOWS}"
        return None

    def _stays(self, update: Update, known: Known) -> bool:
        after = _Iteration(self.loop, {**self.before, **known}, self.assumed).values
        was, now = after[update.carry], after[update.following]
        return now.term == was.term or was.is_nan and now.is_nan

    # ---- sums that follow a maximum ----------------------------------------------------------

    def _maxima(self) -> list[Update]:
        """The running maxima: they start at -inf, and each iteration takes the maximum of the old value and of its own
        elements."""
        found = [Update(c, n) for c, n in self.loop.carries if _starts_at(c, float("-inf"))]
        return [u for u in found if _own_maximum(u) is not None and self._stays(u, {})]

    def _stays_with(self, update: Update, y: Update) -> bool:
        """Whether a sum stays unchanged, whichever kind of number the running maximum `y` is."""
        cases = ({BOTTOM}, {TOP}, {NAN}, FINITE)
        return all(self._stays_in(update, y, frozenset(kinds)) for kinds in cases)

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

    def _after(self, update: Update, known: Known, cases: Sequence[Known] = ({},), some: bool = False) -> Value:
        """The value of a sum after an iteration that is not skipped."""
        return _Iteration(self.loop, {**self.before, **known}, {}, cases, some, runs=True).values[update.following]

    def _is_zero_or_nan(self, update: Update, y: Update) -> bool:
        """Whether a sum can only be 0 or nan while its running maximum is -inf.

        This is proven for the start of the loop, and for an iteration whose elements are all -inf.
        """
        bottom, own = free(y.carry, {BOTTOM}), _own_maximum(y)
        known = {y.carry: bottom, update.carry: free(update.carry, {ZERO, NAN})}
        assert own is not None
        return _starts_at(update.carry, 0) and self._after(update, known, _ways(own.x, bottom)).kinds <= {ZERO, NAN}

    def _is_nan_after_inf(self, update: Update, y: Update) -> bool:
        """Whether a sum is nan once its running maximum is inf.

        This is proven for the iteration in which the maximum becomes inf, and for all later ones.
        """
        top, own = free(y.carry, {TOP}), _own_maximum(y)
        assert own is not None
        if {*own.over} & {*update.carry.axes}:
            return False  # the sum has further axes, so some of its elements may not include the element inf
        known = {y.carry: free(y.carry, FINITE | {BOTTOM, TOP}), own: top}
        first = [self._after(update, known, [way], some=True) for way in _ways(own.x, top)]
        later = self._after(update, {y.carry: top, y.following: top, update.carry: free(update.carry, {NAN})})
        return all(v.is_nan for v in first) and later.is_nan


PRODUCT = "product: a factor is zero"
FOLLOWS = "follows a maximum m: x * exp(m - m) + 0 is x; while m is -inf x is 0, once m is inf or nan x is nan"


def _reason(update: Update) -> str:
    """The reason why a carried value does not change, by the op that updates it."""
    op = update.following
    return abstract.KNOWN.get(op.op, {}).get("unchanged", "it stays") if isinstance(op, Compute) else PRODUCT


def _starts_at(carry: Carry, value: float) -> bool:
    return isinstance(carry.initial, Constant) and carry.initial.value == value


def _own_maximum(update: Update) -> Reduce | None:
    """The maximum of an iteration's own elements, if the update is the larger of it and the carried value."""
    match update.following:
        case Compute(op="maximum", args=(a, b)) if update.carry in (a, b):
            own = b if a is update.carry else a
            return own if isinstance(own, Reduce) and own.op == "max" else None
        case _:
            return None


def _ways(op: Op, value: Value) -> list[Known]:
    """All ways in which an op can have a value. A way says which operand each `where` chooses, and its value."""
    if not isinstance(op, Compute) or op.op != "where":
        return [{op: value}]
    ways: list[Known] = []
    for chosen, x in zip((True, False), op.args[1:]):
        condition = {op: value, op.args[0]: constant(chosen, op.args[0].dtype)}
        if not isinstance(x, Constant):
            ways += [{**condition, **way} for way in _ways(x, value)]
        elif constant(x.value, x.dtype).term == value.term:
            ways.append(condition)
    return ways


class _Iteration:
    """One iteration, evaluated with assumptions.

    known     values of ops before the loop and of carried values; the value of an op of the loop is then not computed
    assumed   values of ops of the loop, for every element
    cases     values of ops of the loop; each element is in one of these cases
    some      whether the case may hold for only some elements of a block
    runs      whether the iteration certainly runs, so that a product reads both factors
    """

    def __init__(
        self, loop: Loop, known: Known, assumed: Known, cases: Sequence[Known] = ({},), some: bool = False,
        runs: bool = False,
    ) -> None:  # fmt: skip
        self.terms, self.cases, self.some, self.runs = abstract.Terms(), cases, some, runs
        self.each: dict[Op, list[Value]] = {op: [v] * len(cases) for op, v in known.items()}
        for op in loop.body:
            given = known.get(op, assumed.get(op))
            self.each[op] = [given] * len(cases) if given is not None else self._evaluated(op)

    @property
    def values(self) -> dict[Op, Value]:
        return {op: abstract.joined(vs, op.dtype, ("op", id(op))) for op, vs in self.each.items()}

    def _evaluated(self, op: Op) -> list[Value]:
        """The value of an op in each case. An op that combines the elements of a block has the same value in all
        cases."""
        cases = range(len(self.cases))
        match op:
            case Compute():
                found = [abstract.computed(op, [self.each[a][k] for a in op.args], self.terms) for k in cases]
            case Spread():
                found = self.each[op.x]
            case Constant():
                found = [constant(op.value, op.dtype) for _ in cases]
            case Reduce():
                found = [self._reduced(op, self._joined(op.x)) for _ in cases]
            case Dot() if op.acc is not None:
                found = [self._product(op, self._joined(op.a), self._joined(op.b), self._joined(op.acc)) for _ in cases]
            case _:
                found = [free(op) for _ in cases]
        return [case.get(op, value) for case, value in zip(self.cases, found)]

    # ---- ops over whole blocks ---------------------------------------------------------------

    def _joined(self, op: Op) -> Value:
        return abstract.joined(self.each[op], op.dtype, ("op", id(op)))

    def _reduced(self, op: Reduce, x: Value) -> Value:
        if op.index is not None or op.rescale is not None or op.shift is not None or op.op in POSITIONS:
            return free(op)
        if x.is_nan or self.some:
            return free(op, {NAN} if x.is_nan else None)
        kind = reduction(op.op).kind
        if x.number and (kind in ("extreme", "logical") or x.is_number(neutral(op.op, op.dtype))):
            return constant(*x.number, op.dtype)
        picks = kind == "extreme" or kind == "sum" and x.kinds <= {ZERO, NAN}
        return free(op, x.kinds if picks else None)

    def _product(self, op: Dot, a: Value, b: Value, acc: Value) -> Value:
        zeros = not self.some and (a.is_number(0) or b.is_number(0))
        if zeros and not self.runs:
            return acc
        if a.is_nan or b.is_nan or acc.is_nan:
            return free(op, {NAN})
        return free(op, {ZERO, NAN} if zeros and acc.kinds <= {ZERO, NAN} else None)
