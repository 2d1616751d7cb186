"""Proofs that an integer expression is never negative, and the check that such a proof holds.

    goal  N - 1 - i//4      4 * goal + 3  ==  (4*N - 1 - i) + (i - 4*(i//4)) + 3 - 3

In: a `Proof`, which minitri/base/inequalities.py finds. Out: whether it holds (`check`), and the facts that it
rests on. The one idea: to check a proof means to compare two polynomials, so nobody has to trust the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minitri.base.dims import ZERO, Atom, Dim, DimLike, Symbol, sign
from minitri.base.extremes import Largest, Smallest


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
    return first.atom == second.atom and (first.value, second.value) == larger and (
        first.when == a - b and second.when == b - a - 1
    )  # fmt: skip


def put(d: Dim, atom: Atom, value: Dim) -> Dim:
    """A value in the place of an atom, at any depth."""

    def new(a: Atom) -> DimLike:
        if a == atom:
            return value
        return Dim({(a,): 1}) if isinstance(a, Symbol) else a.of(put(a.a, atom, value), put(a.b, atom, value))

    return d.map_atoms(new)
