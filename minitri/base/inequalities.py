"""Proves that an integer expression is >= 0, with the help of other expressions that are known to be >= 0.

    goal    N - 1 - i//4
    facts   4*N - 1 - i >= 0,  i - 4*(i//4) >= 0
    proof   4 * goal + 3  ==  (4*N - 1 - i)  +  (i - 4*(i//4))

A fact is an expression that is known to be >= 0, with a reason. The goal is an expression, and a proof shows that the
goal is >= 0. The function `prove` takes a goal and facts. `prove` returns a `Proof`, or None if the search finds no
proof. The one idea: a proof is an equation between a multiple of the goal and a sum of facts, each multiplied by a
factor >= 0. The left side of the equation is scale * goal + room. Here `scale` is a positive integer, and `room` is an
integer from 0 to scale - 1.

    scale * goal + room  ==  weight * multiplier * fact  +  …        0 <= room < scale

Each product on the right side is >= 0, so scale * goal + room is >= 0 too. If scale * goal + room >= 0 and room <
scale, then the goal is greater than -1. A goal is an integer, so a goal greater than -1 is >= 0.

Both sides of a proof's equation are polynomials. Two polynomials are equal if each product of symbols (monomial) has
the same coefficient in both. To find a proof, the search writes one linear equation for each monomial, such as N*i. The
unknown numbers of the linear equations are the weights of the facts: a proof adds facts, each multiplied by its weight.
The simplex algorithm (simplex.py) solves the linear equations. The tests check a proof by comparing the two sides of
its equation, without using the code that finds proofs (tests/test_proofs.py).

Three steps prepare the search for a proof. Each maximum and minimum in the goal and in the facts is split into two
cases. The facts that the caller gives are extended by facts that define quotients and remainders, such as 4*(i//4) <=
i. The search multiplies facts by factors that occur in the goal or in other facts. For example, if N*i occurs in the
goal, the search multiplies each fact about i by N.

The function `prove` finds no proof for some goals that are always >= 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import lcm

from minitri.base.dims import ONE, ZERO, Dim, Quotient, sign
from minitri.base.nodes import Record
from minitri.base.simplex import combination
from minitri.base.symbolic_minmax import Extreme, Largest

MAX_CASES = 6  # how many maxima and minima the search splits into cases
# Numbers to try for the symbols of a goal. No negative numbers are needed: only a value from an array can be negative,
# and without facts the search proves nothing about a value from an array.
SAMPLES = ((0,), (1,), (2,), (3,), (9,), (0, 9), (9, 0), (1, 2, 4))


class Fact(Record):
    """The fact that the expression `expr` is >= 0. The text `because` says why `expr` is >= 0. If the fact follows from
    other facts, `proof` is the derivation.
    """

    expr: Dim
    because: str
    proof: Proof | None = None


class Step(Record):
    """One product in the sum of a proof: weight * multiplier * fact. `weight` is an integer, `multiplier` is a product
    of sizes and axes, and the expression of `fact` is >= 0.
    """

    weight: int
    multiplier: Dim  # a product of sizes and axes, so never negative
    fact: Fact


class Proof(Record):
    """A proof that goal >= 0, in one of four forms.

    `steps`: the products that add up to scale * goal + room (see the fields `scale` and `room`). The module's docstring
        explains this equation.
    `wider`: for a positive integer n, a proof that n * goal + n - 1 >= 0. An integer goal is >= 0 if n * goal + n - 1
        >= 0. The field `divisor` stores the fact that n - 1 is >= 0.
    `cases`: two proofs of the goal. Each of the two proofs assumes one of the two values that the maximum or minimum
        `atom` can have.
    `never`: a proof that the facts imply -1 >= 0. The facts then contradict each other, so they imply every goal.
    """

    goal: Dim
    scale: int = 1
    room: int = 0
    steps: tuple[Step, ...] = ()
    wider: Proof | None = None
    divisor: Fact | None = None
    atom: Extreme | None = None
    cases: tuple[Proof, ...] = ()
    never: Proof | None = None

    def facts(self) -> Iterator[Fact]:
        """Yields the facts that the proof uses. Instead of a fact that has its own proof, yields the facts that this
        proof uses.
        """
        for s in self.steps:
            yield from s.fact.proof.facts() if s.fact.proof else (s.fact,)
        for below in (self.wider, self.never, *self.cases):
            if below is not None:
                yield from below.facts()


def in_cases(atom: Extreme) -> tuple[tuple[Dim, Dim], tuple[Dim, Dim]]:
    """Splits a maximum or minimum of a and b into two cases: its value is a, or its value is b.

    Each case is a pair (value, condition): the case holds exactly if the expression `condition` is >= 0.

    Example: max(a, b) is a if a - b >= 0, and b if b - a - 1 >= 0.
    """
    a, b = (atom.a, atom.b) if isinstance(atom, Largest) else (atom.b, atom.a)
    return (a, atom.a - atom.b), (b, atom.b - atom.a - 1)


# ---- the search ----------------------------------------------------------------------------


def prove(goal: Dim, facts: Sequence[Fact]) -> Proof | None:
    """Returns a proof that the goal is >= 0 whenever all facts are >= 0, or None if no proof is found.

    Facts about single sizes and axes are not needed, because sizes and axes are always >= 0.
    """
    return _search(goal, facts, MAX_CASES) if facts else _for_all_sizes(goal)


@lru_cache(maxsize=4096)
def _for_all_sizes(goal: Dim) -> Proof | None:
    """Returns a proof that an expression is >= 0 for all sizes, or None."""
    return None if _is_refuted(goal) else _search(goal, (), MAX_CASES)  # a test with small sizes is cheap


def _is_refuted(goal: Dim) -> bool:
    """Checks whether an expression is negative for one of a few small sizes."""
    symbols = sorted(goal.symbols(), key=lambda s: (s.name, s.kind))
    for numbers in SAMPLES:
        with suppress(ZeroDivisionError):
            if goal.compute({s: numbers[k % len(numbers)] for k, s in enumerate(symbols)}) < 0:
                return True
    return False


def _search(goal: Dim, facts: Sequence[Fact], depth: int) -> Proof | None:
    """Returns a proof that an expression is >= 0 if the facts hold, or None."""
    if (found := _at_once(goal, facts)) is not None:
        return found
    everything = [goal, *(f.expr for f in facts)]
    atom = next((p for d in everything for p in d.pairs() if isinstance(p, Extreme)), None)
    if atom is not None:
        return _by_cases(goal, facts, atom, depth) if depth else None  # splits at most `depth` maxima
    for exprs, with_bounds in (([goal], False), ([goal], True), (everything, True)):  # cheapest first
        known = [*facts, *_definitions(exprs, facts, with_bounds)]
        known += _signs([goal, *(f.expr for f in known)])
        if (found := _by_sum(goal, known) or _by_division(goal, known)) is not None:
            return found
    never = _by_sum(-ONE, [*facts, *_signs(everything)])
    return None if never is None else Proof(goal, never=never)


def _at_once(goal: Dim, facts: Sequence[Fact]) -> Proof | None:
    """Returns a proof that uses at most one fact, or None."""
    if sign(goal) in (0, 1):
        return Proof(goal, steps=_plain(goal))
    for f in facts:
        rest = goal - f.expr
        if sign(rest) in (0, 1):
            return Proof(goal, steps=(Step(1, ONE, f), *_plain(rest)))
    return None


def _plain(d: Dim) -> tuple[Step, ...]:
    """Returns the proof step for an expression that `sign` proves to be >= 0."""
    return (Step(1, ONE, Fact(d, "a sum of what is never negative")),) if d.terms else ()  # 0 needs no step


def _by_cases(goal: Dim, facts: Sequence[Fact], atom: Extreme, depth: int) -> Proof | None:
    cases: list[Proof] = []
    for value, when in in_cases(atom):
        known = [Fact(f.expr.replace_atoms({atom: value}), f.because) for f in facts]
        known.append(Fact(when, f"the case {atom} = {value}"))
        if (proof := _search(goal.replace_atoms({atom: value}), known, depth - 1)) is None:
            return None
        cases.append(proof)
    return Proof(goal, atom=atom, cases=tuple(cases))


# ---- facts that the expressions bring ------------------------------------------------------


def _definitions(exprs: Iterable[Dim], facts: Sequence[Fact], with_bounds: bool) -> list[Fact]:
    """Returns facts about quotients and remainders, such as `0 <= x % n` and `x % n < n`."""
    found: list[Fact] = []
    pairs = dict.fromkeys(p for d in exprs for p in d.pairs())  # maxima and minima have been split into cases
    for p in pairs:
        x, n, own = p.a, p.b, Dim({(p,): 1})
        if _positive(n, facts) is None:
            continue  # the facts hold only for divisors >= 1
        if isinstance(p, Quotient):
            whole = n * own
            # n*(x//n) <= x < n*(x//n) + n
            found += [Fact(x - whole, f"{p} is a quotient"), Fact(whole + n - 1 - x, f"{p} is a quotient")]
            found += _quotient_bounds(p, [*facts, *found]) if with_bounds else ()
        else:
            found += [Fact(own, f"{p} is a remainder"), Fact(n - 1 - own, f"{p} is a remainder")]  # 0 <= x%n < n
            if Quotient(x, n) in pairs:
                rest = x - n * Dim({(Quotient(x, n),): 1}) - own
                found += [Fact(rest, f"{p} is a remainder"), Fact(-rest, f"{p} is a remainder")]
    return found


def _positive(n: Dim, facts: Sequence[Fact]) -> Proof | None:
    """Returns a proof that a divisor is at least 1, or None."""
    return _at_once(n - 1, facts) or _by_sum(n - 1, [*facts, *_signs([n])])


def _quotient_bounds(q: Quotient, facts: Sequence[Fact]) -> Iterator[Fact]:
    """Yields bounds of a quotient, such as `x//4 <= N - 1` if `x <= 4*N - 1`."""
    own = Dim({(q,): 1})
    goals = [own]
    for f in facts:
        high = f.expr + q.a  # q.a <= high
        if not (set(high.symbols()) & {s for s in q.a.symbols() if s.kind != "size"}):
            whole = (high + 1) // q.b
            exact = whole - 1 if high + 1 == whole * q.b else high // q.b
            goals.append(exact - own)
    for goal in dict.fromkeys(goals):
        if (proof := _by_sum(goal, [*facts, *_signs([goal])]) or _scaled(goal, facts, q.b)) is not None:
            yield Fact(goal, f"{q} is a quotient", proof)


def _signs(exprs: Iterable[Dim]) -> list[Fact]:
    """Returns a fact `s >= 0` for each size `s` and each axis index `s` in the given expressions."""
    symbols = {s for d in exprs for s in d.symbols() if s.kind != "value"}
    return [Fact(Dim({(s,): 1}), f"{s} is never negative") for s in sorted(symbols, key=lambda s: (s.name, s.kind))]


def _by_division(goal: Dim, facts: Sequence[Fact]) -> Proof | None:
    """Proves that an expression with a quotient is >= 0, or returns None."""
    divisors = (a.b for a in goal.atoms() if isinstance(a, Quotient) and a.b.constant is None)
    return next(filter(None, (_scaled(goal, facts, n) for n in divisors)), None)


def _scaled(goal: Dim, facts: Sequence[Fact], n: Dim) -> Proof | None:
    """Tries to prove `goal >= 0` by proving `goal * n + n - 1 >= 0` for a positive divisor `n`."""
    if (positive := _positive(n, facts)) is None:
        return None
    wide = goal * n + n - 1  # if wide >= 0, then goal > -1, so an integer goal is >= 0
    proof = _by_sum(wide, [*facts, *_signs([wide])])
    return None if proof is None else Proof(goal, wider=proof, divisor=Fact(n - 1, "a divisor", positive))


# ---- sums ----------------------------------------------------------------------------------


def _by_sum(goal: Dim, facts: Sequence[Fact]) -> Proof | None:
    """Proves `goal` >= 0 with a weighted sum of expressions known to be >= 0, or returns None."""
    columns = [(ONE, f) for f in dict.fromkeys(facts)]
    for terms in (columns, [*columns, *_products(goal, facts)]):  # the second time also with facts times sizes or axes
        if (weights := combination(goal, [m * f.expr for m, f in terms])) is not None:
            return _proof(goal, terms, weights)
    return None


def _proof(goal: Dim, terms: Sequence[tuple[Dim, Fact]], weights: Mapping[int, Fraction]) -> Proof:
    """Makes a `Proof` from the terms and weights of a weighted sum."""
    scale = lcm(*(w.denominator for w in weights.values()))  # makes all weights integers
    steps = [Step(int(w * scale), *terms[k]) for k, w in weights.items()]
    rest = goal * scale - sum((s.multiplier * s.fact.expr * s.weight for s in steps), ZERO)
    constant = int(rest)
    if constant > 0:
        steps.append(Step(1, ONE, Fact(rest, "a positive number")))
    return Proof(goal, scale, max(0, -constant), tuple(steps))


def _products(goal: Dim, facts: Sequence[Fact]) -> list[tuple[Dim, Fact]]:
    """Returns pairs (factor, fact) with factors >= 0: a proof may multiply the fact by the factor."""
    wanted = {m for d in (goal, *(f.expr for f in facts)) for m, _ in d.terms if len(m) > 1}
    found: dict[tuple[Dim, Fact], None] = {}
    for m in sorted(wanted, key=str):
        for k in range(1, len(m)):
            for part in combinations(range(len(m)), k):
                rest = tuple(a for n, a in enumerate(m) if n not in part)
                factor = Dim({tuple(m[n] for n in part): 1})
                if sign(factor) == 1:
                    # If the goal has the term `N*i`, the fact `M - 1 - i >= 0` is multiplied by N to get this term.
                    found |= {(factor, f): None for f in facts if any(q == rest for q, _ in f.expr.terms)}
    return list(found)
