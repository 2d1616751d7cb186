"""Proofs that an integer expression is never negative, from other inequalities.

    N - 1 - (i//4)       4 * goal + 3  ==  (4*N - 1 - i) + (i - 4*(i//4)) + 3 - 3

In: facts (expressions known to be >= 0, each with a reason) and a goal. Out: a `Proof`, or None.
The one idea: a proof is a sum

    scale * goal + room  ==  weight * multiplier * fact  +  …        0 <= room < scale

with weights > 0 and multipliers >= 0. It shows that goal > -1, and an integer > -1 is >= 0.

`Proof.check` (inequality_proofs.py) compares the two sides as polynomials, so nobody has to trust the search. The search is
linear: each product of symbols counts as an unknown, and an exact simplex (simplex.py) finds the weights.

Three steps prepare the search. Max and min are split into cases. Quotients and remainders add the
facts that define them. Facts are multiplied by factors that the products in the goal suggest.

Left out: completeness. None does not mean that the goal is false.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import lcm

from minitri.base.dims import ONE, ZERO, Dim, Quotient, Remainder, Symbol, floordiv, sign
from minitri.base.extremes import Largest, Smallest
from minitri.base.inequality_proofs import Case, Fact, Proof, Step, put
from minitri.base.simplex import combine

MAX_CASES = 6  # how many maxima and minima are split
# Numbers that are tried for the symbols of a goal, in turn. A value read from an array may be negative, so there is
# nothing to be proven of it without facts.
SAMPLES = ((0,), (1,), (2,), (3,), (9,), (0, 9), (9, 0), (1, 2, 4))
ALMOST = Fraction(999_999, 1_000_000)


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
    atom = next((a for d in (goal, *(f.expr for f in facts)) for a in _extremes(d)), None)
    if atom is not None:
        return _by_cases(goal, facts, atom, depth) if depth else None
    everything = [goal, *(f.expr for f in facts)]
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


def _extremes(d: Dim) -> Iterator[Largest | Smallest]:
    for a in d.atoms():
        if isinstance(a, (Largest, Smallest)):
            yield from (*_extremes(a.a), *_extremes(a.b), a)
        elif not isinstance(a, Symbol):
            yield from (*_extremes(a.a), *_extremes(a.b))


# ---- facts that the expressions bring ------------------------------------------------------


def _pairs(exprs: Iterable[Dim]) -> dict[Quotient | Remainder, None]:
    """Every quotient and remainder in the expressions, inner ones first."""
    found: dict[Quotient | Remainder, None] = {}
    for d in exprs:
        for a in d.atoms():
            if isinstance(a, (Quotient, Remainder)):
                found |= _pairs([a.a, a.b])
                found[a] = None
    return found


def _definitions(exprs: Iterable[Dim], facts: Sequence[Fact], cuts: bool) -> list[Fact]:
    """n*(x//n) <= x < n*(x//n) + n, and 0 <= x%n < n, where n >= 1; `cuts`: and what x//n can be at most."""
    found: list[Fact] = []
    pairs = _pairs(exprs)
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
    for a in goal.atoms():
        if isinstance(a, Quotient) and a.b.constant is None:
            proof = _scaled(goal, facts, a.b)
            if proof is not None:
                return proof
    return None


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
        terms = _useful(goal, terms)
        for slack in (Fraction(0), ALMOST):
            target = {m: Fraction(c) for m, c in goal.terms}
            target[()] = target.get((), Fraction(0)) + slack
            weights = combine([{(): 1}, *(dict((m * f.expr).terms) for m, f in terms)], target)
            if weights is not None:
                return _proof(goal, terms, weights[1:])
    return None


def _proof(goal: Dim, terms: Sequence[tuple[Dim, Fact]], weights: Sequence[Fraction]) -> Proof | None:
    used = [(w, *t) for w, t in zip(weights, terms) if w]
    scale = lcm(*(w.denominator for w, *_ in used)) if used else 1
    steps = [Step(int(w * scale), m, f) for w, m, f in used]
    rest = goal * scale - sum((s.multiplier * s.fact.expr * s.weight for s in steps), ZERO)
    constant = rest.constant
    assert constant is not None
    if constant > 0:
        steps.append(Step(1, ONE, Fact(rest, "a positive number")))
    return Proof(goal, scale, max(0, -constant), tuple(steps))


def _useful(goal: Dim, terms: Sequence[tuple[Dim, Fact]]) -> list[tuple[Dim, Fact]]:
    """The facts that share a product with the goal, directly or through other facts."""
    wanted = {m for m, _ in goal.terms if m}
    if not wanted:  # a contradiction may be anywhere
        return list(terms)
    found: dict[int, tuple[Dim, Fact]] = {}
    monomials = [{m for m, _ in (mult * f.expr).terms if m} for mult, f in terms]
    while True:
        more = [k for k, ms in enumerate(monomials) if k not in found and ms & wanted]
        if not more:
            return [found[k] for k in sorted(found)]
        for k in more:
            found[k] = terms[k]
            wanted |= monomials[k]


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
