"""Proofs that an integer expression is never negative, from other inequalities; and the check of such a proof.

    N - 1 - (i//4)       4 * goal + 3  ==  (4*N - 1 - i) + (i - 4*(i//4)) + 3 - 3

In: facts (expressions known to be >= 0, each with a reason) and a goal. Out: a `Proof`, or None.
The one idea: a proof is a sum

    scale * goal + room  ==  weight * multiplier * fact  +  …        0 <= room < scale

with weights > 0 and multipliers >= 0. It shows that goal > -1, and an integer > -1 is >= 0.

`Proof.check` compares the two sides as polynomials, so nobody has to trust the search. The search is linear: each
product of symbols counts as an unknown, and an exact simplex (simplex.py) finds the weights.

Three steps prepare the search. Max and min are split into cases. Quotients and remainders add the
facts that define them. Facts are multiplied by factors that the products in the goal suggest.

Left out: completeness. None does not mean that the goal is false.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import lcm

from minitri.base.dims import ONE, ZERO, Atom, Dim, DimLike, Quotient, Symbol, floordiv, sign
from minitri.base.extremes import Largest, Smallest
from minitri.base.simplex import combination

MAX_CASES = 6  # how many maxima and minima are split
# Numbers that are tried for the symbols of a goal, in turn. A value read from an array may be negative, so there is
# nothing to be proven of it without facts.
SAMPLES = ((0,), (1,), (2,), (3,), (9,), (0, 9), (9, 0), (1, 2, 4))


@dataclass(frozen=True, slots=True)
class Fact:
    """`expr` >= 0, and why. `proof`: if it was derived from other facts."""

    expr: Dim
    because: str
    proof: Proof | None = None


@dataclass(frozen=True, slots=True)
class Step:
    weight: int
    multiplier: Dim  # a product of sizes and axes, so never negative
    fact: Fact


@dataclass(frozen=True, slots=True)
class Proof:
    """goal >= 0: by a sum (`steps`), by more than the goal (`wider`), in each of two cases, or of nothing."""

    goal: Dim
    scale: int = 1
    room: int = 0
    steps: tuple[Step, ...] = ()
    wider: Proof | None = None
    divisor: Fact | None = None
    cases: tuple[Case, ...] = ()
    never: Proof | None = None  # the facts contradict each other: -1 >= 0

    def check(self) -> bool:
        """Whether the proof holds, by the comparison of polynomials."""
        if self.cases:
            return _complete(self.cases) and all(c.holds(self.goal) for c in self.cases)
        if self.never is not None:
            return self.never.goal == -1 and self.never.check()
        if self.wider is not None:  # divisor * goal + divisor - 1 >= 0 and divisor >= 1, so goal > -1
            n = self.divisor.expr + 1 if self.divisor else ZERO
            return self.wider.goal == self.goal * n + n - 1 and self.wider.check()
        total = ZERO
        for s in self.steps:
            if s.weight < 0 or sign(s.multiplier) not in (0, 1) or not (s.fact.proof is None or s.fact.proof.check()):
                return False
            total = total + s.multiplier * s.fact.expr * s.weight
        return 0 <= self.room < self.scale and self.goal * self.scale + self.room == total

    def facts(self) -> Iterator[Fact]:
        """What it rests on, in the end."""
        for s in self.steps:
            yield from s.fact.proof.facts() if s.fact.proof else (s.fact,)
        for below in (self.wider, self.never, *(c.proof for c in self.cases)):
            if below is not None:
                yield from below.facts()


@dataclass(frozen=True, slots=True)
class Case:
    """A maximum or minimum is one of its two operands; `when` >= 0 says which."""

    atom: Largest | Smallest
    value: Dim
    when: Dim
    proof: Proof

    def holds(self, goal: Dim) -> bool:
        return self.proof.goal == put(goal, self.atom, self.value) and self.proof.check()


def _complete(cases: Sequence[Case]) -> bool:
    """Two cases of one maximum, one of which must be: a - b >= 0, or b - a - 1 >= 0."""
    first, second = cases
    a, b = first.atom.a, first.atom.b
    larger = (a, b) if isinstance(first.atom, Largest) else (b, a)
    right = first.atom == second.atom and (first.when, second.when) == (a - b, b - a - 1)
    return right and (first.value, second.value) == larger


def put(d: Dim, atom: Atom, value: Dim) -> Dim:
    """A value in the place of an atom, at any depth."""

    def new(a: Atom) -> DimLike:
        if a == atom:
            return value
        return Dim({(a,): 1}) if isinstance(a, Symbol) else a.of(put(a.a, atom, value), put(a.b, atom, value))

    return d.map_atoms(new)


# ---- the search ----------------------------------------------------------------------------


def prove(goal: Dim, facts: Sequence[Fact]) -> Proof | None:
    """A proof that the goal is >= 0 wherever all facts are (and sizes and axes are >= 0)."""
    return _search(goal, facts, MAX_CASES) if facts else _for_all_sizes(goal)


@lru_cache(maxsize=4096)
def _for_all_sizes(goal: Dim) -> Proof | None:
    """A proof without facts. Most goals of this kind are wrong, and some small sizes show that at once."""
    return None if _is_refuted(goal) else _search(goal, (), MAX_CASES)


def _is_refuted(goal: Dim) -> bool:
    """Whether the goal is below 0 for some small numbers."""
    symbols = sorted(goal.symbols(), key=lambda s: (s.name, s.kind))
    for numbers in SAMPLES:
        with suppress(ZeroDivisionError):
            if goal.compute({s: numbers[k % len(numbers)] for k, s in enumerate(symbols)}) < 0:
                return True
    return False


def _search(goal: Dim, facts: Sequence[Fact], depth: int) -> Proof | None:
    """`depth`: how many maxima and minima may still be split into cases."""
    found = _at_once(goal, facts)
    if found is not None:
        return found
    everything = [goal, *(f.expr for f in facts)]
    atom = next((p for d in everything for p in d.pairs() if isinstance(p, (Largest, Smallest))), None)
    if atom is not None:
        return _by_cases(goal, facts, atom, depth) if depth else None
    for exprs, cuts in (([goal], False), ([goal], True), (everything, True)):  # the first is mostly enough
        known = [*facts, *_definitions(exprs, facts, cuts)]
        known += _signs([goal, *(f.expr for f in known)])
        found = _by_sum(goal, known) or _by_division(goal, known)
        if found is not None:
            return found
    never = _by_sum(-ONE, [*facts, *_signs(everything)])
    return None if never is None else Proof(goal, never=never)


def _at_once(goal: Dim, facts: Sequence[Fact]) -> Proof | None:
    """The goal is a fact, or more than one by what is plainly >= 0."""
    if sign(goal) in (0, 1):
        return Proof(goal, steps=_plain(goal))
    for f in facts:
        rest = goal - f.expr
        if sign(rest) in (0, 1):
            return Proof(goal, steps=(Step(1, ONE, f), *_plain(rest)))
    return None


def _plain(d: Dim) -> tuple[Step, ...]:
    """A sum of positive terms over what is never negative."""
    return (Step(1, ONE, Fact(d, "a sum of what is never negative")),) if d.terms else ()


def _by_cases(goal: Dim, facts: Sequence[Fact], atom: Largest | Smallest, depth: int) -> Proof | None:
    a, b = atom.a, atom.b
    values = (a, b) if isinstance(atom, Largest) else (b, a)
    cases: list[Case] = []
    for value, when in zip(values, (a - b, b - a - 1)):
        known = [Fact(put(f.expr, atom, value), f.because) for f in facts]
        known.append(Fact(when, f"the case {atom} = {value}"))
        proof = _search(put(goal, atom, value), known, depth - 1)
        if proof is None:
            return None
        cases.append(Case(atom, value, when, proof))
    return Proof(goal, cases=tuple(cases))


# ---- facts that the expressions bring ------------------------------------------------------


def _definitions(exprs: Iterable[Dim], facts: Sequence[Fact], cuts: bool) -> list[Fact]:
    """n*(x//n) <= x < n*(x//n) + n, and 0 <= x%n < n, where n >= 1; `cuts`: and what x//n can be at most."""
    found: list[Fact] = []
    pairs = dict.fromkeys(p for d in exprs for p in d.pairs())  # no maxima and minima: these are split into cases
    for p in pairs:
        x, n, own = p.a, p.b, Dim({(p,): 1})
        if _positive(n, facts) is None:
            continue
        if isinstance(p, Quotient):
            whole = n * own
            found += [Fact(x - whole, f"{p} is a quotient"), Fact(whole + n - 1 - x, f"{p} is a quotient")]
            found += _cuts(p, [*facts, *found]) if cuts else ()
        else:
            found += [Fact(own, f"{p} is a remainder"), Fact(n - 1 - own, f"{p} is a remainder")]
            if Quotient(x, n) in pairs:
                rest = x - n * Dim({(Quotient(x, n),): 1}) - own
                found += [Fact(rest, f"{p} is a remainder"), Fact(-rest, f"{p} is a remainder")]
    return found


def _positive(n: Dim, facts: Sequence[Fact]) -> Proof | None:
    return _at_once(n - 1, facts) or _by_sum(n - 1, [*facts, *_signs([n])])


def _cuts(q: Quotient, facts: Sequence[Fact]) -> Iterator[Fact]:
    """The bounds of a quotient that follow from bounds of what is divided, rounded to integers."""
    own = Dim({(q,): 1})
    goals = [own]
    for f in facts:
        high = f.expr + q.a  # q.a <= high
        if not (set(high.symbols()) & {s for s in q.a.symbols() if s.kind != "size"}):
            whole = floordiv(high + 1, q.b)
            exact = whole - 1 if high + 1 == whole * q.b else floordiv(high, q.b)
            goals.append(exact - own)
    for goal in dict.fromkeys(goals):
        proof = _by_sum(goal, [*facts, *_signs([goal])]) or _scaled(goal, facts, q.b)
        if proof is not None:
            yield Fact(goal, f"{q} is a quotient", proof)


def _signs(exprs: Iterable[Dim]) -> list[Fact]:
    """Sizes and axes are never negative."""
    symbols = {s for d in exprs for s in d.symbols() if s.kind != "value"}
    return [Fact(Dim({(s,): 1}), f"{s} is never negative") for s in sorted(symbols, key=lambda s: (s.name, s.kind))]


def _by_division(goal: Dim, facts: Sequence[Fact]) -> Proof | None:
    """n*goal + n - 1 >= 0 is enough, for the n of a quotient in the goal."""
    divisors = (a.b for a in goal.atoms() if isinstance(a, Quotient) and a.b.constant is None)
    return next(filter(None, (_scaled(goal, facts, n) for n in divisors)), None)


def _scaled(goal: Dim, facts: Sequence[Fact], n: Dim) -> Proof | None:
    positive = _positive(n, facts)
    if positive is None:
        return None
    wide = goal * n + n - 1
    proof = _by_sum(wide, [*facts, *_signs([wide])])
    return None if proof is None else Proof(goal, wider=proof, divisor=Fact(n - 1, "a divisor", positive))


# ---- sums ----------------------------------------------------------------------------------


def _by_sum(goal: Dim, facts: Sequence[Fact]) -> Proof | None:
    """Weights for the facts, and for products of them with what the goal is made of."""
    columns = [(ONE, f) for f in dict.fromkeys(facts)]
    for terms in (columns, [*columns, *_products(goal, facts)]):
        weights = combination(goal, [m * f.expr for m, f in terms])
        if weights is not None:
            return _proof(goal, terms, weights)
    return None


def _proof(goal: Dim, terms: Sequence[tuple[Dim, Fact]], weights: Mapping[int, Fraction]) -> Proof:
    scale = lcm(*(w.denominator for w in weights.values()))
    steps = [Step(int(w * scale), *terms[k]) for k, w in weights.items()]
    rest = goal * scale - sum((s.multiplier * s.fact.expr * s.weight for s in steps), ZERO)
    constant = int(rest)
    if constant > 0:
        steps.append(Step(1, ONE, Fact(rest, "a positive number")))
    return Proof(goal, scale, max(0, -constant), tuple(steps))


def _products(goal: Dim, facts: Sequence[Fact]) -> list[tuple[Dim, Fact]]:
    """Facts times the rest of a product that they are a part of: N * (M - 1 - i) for N*i."""
    wanted = {m for d in (goal, *(f.expr for f in facts)) for m, _ in d.terms if len(m) > 1}
    found: dict[tuple[Dim, Fact], None] = {}
    for m in sorted(wanted, key=str):
        for k in range(1, len(m)):
            for part in combinations(range(len(m)), k):
                rest = tuple(a for n, a in enumerate(m) if n not in part)
                factor = Dim({tuple(m[n] for n in part): 1})
                if sign(factor) == 1:
                    found |= {(factor, f): None for f in facts if any(q == rest for q, _ in f.expr.terms)}
    return list(found)
