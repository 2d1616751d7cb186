"""Proof that an iteration of a loop leaves all carried values as they are.

    for r {                                        r where i >= r fails for the whole block:
      %x = where i >= r, load x[i, r], -inf          %x is -inf
      %b = reduce.max %x                             %b is -inf
      next %m = maximum %m, %b                       %m, whatever it is
      next %s = … * exp(%m - next) + sum exp(…)      %s * 1 + 0, while %m is finite
    }

In: a loop, the ops before it, and assumptions about some of its ops (a condition that fails). Out: for each carried
value the reason why it stays, or None without a proof. The body of the loop is evaluated with these assumptions
(optimize/skip_blocks/abstract_values.py). Each carried value must come out as it went in.

A sum that follows a running maximum m is multiplied by a power of m - m
(minitri/optimize/online_reductions/lower.py). That is nan while m is not finite, so the cases of m are looked at
one by one. Where a case needs it, a fact about the sum is proven by induction over the iterations that run:

    m is -inf          the sum is 0 or nan: it starts at 0, and terms of -inf add 0
    m is inf or nan    the sum is nan: the element that made m so has a term that is nan

A product with a factor of zeros leaves its sum as it is: the other factor is not read (docs/reference/semantics.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minitri.base.operators import POSITIONS, neutral, reduction
from minitri.kernels.ir import Carry, Compute, Constant, Dot, Op, Reduce, Spread, needed
from minitri.optimize.skip_blocks import abstract_values as abstract
from minitri.optimize.skip_blocks.abstract_values import BOTTOM, FINITE, NAN, TOP, ZERO, Value, constant, free, read
from minitri.tiles.ir import Loop

Known = Mapping[Any, Value]


class Update(NamedTuple):
    """A carried value, and its value after an iteration."""

    carry: Carry
    following: Op


def unchanged(loop: Loop, before: Sequence[Op], assumed: Known) -> tuple[str, ...] | None:
    """Why each carried value stays in an iteration in which `assumed` holds; None if one may change."""
    proof = _Proof(loop, before, assumed)
    reasons = [proof.reason(Update(*u)) for u in loop.carries]
    return None if None in reasons or not reasons else tuple(r for r in reasons if r is not None)


class _Proof:
    def __init__(self, loop: Loop, before: Sequence[Op], assumed: Known) -> None:
        self.loop, self.assumed = loop, assumed
        self.before: dict[Op, Value] = {op: read(op) if isinstance(op, Constant) else free(op) for op in before}

    def reason(self, update: Update) -> str | None:
        if self._stays(update, {}):
            return _reason(update)
        maxima = [y for y in self._maxima() if y.carry in needed(update.following) and y.carry is not update.carry]
        if any(self._stays_with(update, y) for y in maxima):
            return f"{_reason(update).partition(':')[0]}: {FOLLOWS}"
        return None

    def _stays(self, update: Update, known: Known) -> bool:
        after = _Round(self.loop, {**self.before, **known}, self.assumed).values
        was, now = after[update.carry], after[update.following]
        return now.term == was.term or was.is_nan and now.is_nan

    # ---- sums that follow a maximum ----------------------------------------------------------

    def _maxima(self) -> list[Update]:
        """The running maxima: they start at -inf, and an iteration takes the larger of the old value and its own."""
        found = [Update(c, n) for c, n in self.loop.carries if _starts_at(c, float("-inf"))]
        return [u for u in found if _own_maximum(u) is not None and self._stays(u, {})]

    def _stays_with(self, update: Update, y: Update) -> bool:
        """Whether a sum stays in every case of the maximum `y`."""
        cases = [frozenset((k,)) for k in (BOTTOM, TOP, NAN)] + [FINITE]
        return all(self._stays_in(update, y, kinds) for kinds in cases)

    def _stays_in(self, update: Update, y: Update, kinds: frozenset[str]) -> bool:
        known = {y.carry: free(y.carry, kinds)}
        if self._stays(update, known):
            return True
        stays = {k: self._stays(update, {**known, update.carry: free(update.carry, {k})}) for k in (ZERO, NAN)}
        if kinds == {BOTTOM}:
            return all(stays.values()) and self._is_zero_or_nan(update, y)
        if kinds == {TOP}:
            return stays[NAN] and self._is_nan_after_inf(update, y)
        return kinds == {NAN} and stays[NAN] and self._is_nan_after_nan(update, y)

    def _after(self, update: Update, known: Known, cases: Sequence[Known] = ({},), some: bool = False) -> Value:
        """The value of a sum after an iteration that runs."""
        return _Round(self.loop, {**self.before, **known}, {}, cases, some, runs=True).values[update.following]

    def _is_zero_or_nan(self, update: Update, y: Update) -> bool:
        """While the maximum is -inf: at the start, and after an iteration of nothing but -inf."""
        bottom, own = free(y.carry, {BOTTOM}), _own_maximum(y)
        known = {y.carry: bottom, update.carry: free(update.carry, {ZERO, NAN})}
        assert own is not None
        return _starts_at(update.carry, 0) and self._after(update, known, _ways(own.x, bottom)).kinds <= {ZERO, NAN}

    def _is_nan_after_inf(self, update: Update, y: Update) -> bool:
        """Once the maximum is inf: in the iteration with an element that is inf, and in all later ones."""
        top, own = free(y.carry, {TOP}), _own_maximum(y)
        assert own is not None
        if {*own.over} & {*update.carry.axes}:
            return False  # other elements of the sum need not have a part in that one
        known = {y.carry: free(y.carry, FINITE | {BOTTOM, TOP}), own: top}
        first = [self._after(update, known, [way], some=True) for way in _ways(own.x, top)]
        later = self._after(update, {y.carry: top, y.following: top, update.carry: free(update.carry, {NAN})})
        return all(v.is_nan for v in first) and later.is_nan

    def _is_nan_after_nan(self, update: Update, y: Update) -> bool:
        """Once the maximum is nan: each term is."""
        return self._after(update, {y.following: free(y.carry, {NAN})}).is_nan


REASONS = {  # by the op that makes the next carried value
    "maximum": "max: maximum(x, -inf) is x", "minimum": "min: minimum(x, inf) is x", "add": "sum: x + 0 is x",
    "multiply": "prod: x * 1 is x", "logical_or": "any: x or false is x", "logical_and": "all: x and true is x",
    "where": "choice: nothing better is found",
}  # fmt: skip
PRODUCT = "product: a factor is zero"
FOLLOWS = "follows a maximum m: x * exp(m - m) + 0 is x; while m is -inf x is 0, once m is inf or nan x is nan"


def _reason(update: Update) -> str:
    """Why a carried value stays that follows no other one."""
    op = update.following
    return REASONS.get(op.op, "it stays") if isinstance(op, Compute) else PRODUCT


def _starts_at(carry: Carry, value: float) -> bool:
    return isinstance(carry.initial, Constant) and carry.initial.value == value


def _own_maximum(update: Update) -> Reduce | None:
    """The maximum of the iteration's own elements, which is compared with a running maximum."""
    match update.following:
        case Compute(op="maximum", args=(a, b)) if update.carry in (a, b):
            own = b if a is update.carry else a
            return own if isinstance(own, Reduce) and own.op == "max" else None
        case _:
            return None


def _ways(op: Op, value: Value) -> list[Known]:
    """How an op can come to a value: with which choice, of which operand."""
    if not isinstance(op, Compute) or op.op != "where":
        return [{op: value}]
    ways: list[Known] = []
    for chosen, x in zip((True, False), op.args[1:]):
        condition = {op: value, op.args[0]: constant(chosen, op.args[0].dtype)}
        if not isinstance(x, Constant):
            ways += [{**condition, **way} for way in _ways(x, value)]
        elif read(x).term == value.term:
            ways.append(condition)
    return ways


class _Round:
    """One iteration, evaluated with assumptions.

    known     of ops before the loop and of carried values; for an op of the loop it replaces its own value
    assumed   of ops of the loop, in every element
    cases     of ops of the loop: each element is in one of these cases
    some      the case holds for some element of a block, not for all
    runs      the iteration runs: a product reads both factors
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
        """In each case. An op over all elements of a block is the same in all of them."""
        cases = range(len(self.cases))
        match op:
            case Compute():
                found = [abstract.computed(op, [self.each[a][k] for a in op.args], self.terms) for k in cases]
            case Spread():
                found = self.each[op.x]
            case Constant():
                found = [read(op) for _ in cases]
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
        if x.is_nan:
            return free(op, {NAN})
        if self.some:
            return free(op)
        kind = reduction(op.op).kind
        if x.is_constant and (kind in ("extreme", "logical") or x.is_number(neutral(op.op, op.dtype))):
            return constant(x.constant, op.dtype)
        picks = kind == "extreme" or kind == "sum" and x.kinds <= {ZERO, NAN}
        return free(op, x.kinds if picks else None)

    def _product(self, op: Dot, a: Value, b: Value, acc: Value) -> Value:
        zeros = not self.some and (a.is_number(0) or b.is_number(0))
        if zeros and not self.runs:
            return acc
        if a.is_nan or b.is_nan or acc.is_nan:
            return free(op, {NAN})
        if zeros and acc.kinds <= {ZERO, NAN}:
            return free(op, {ZERO, NAN})
        return free(op)
