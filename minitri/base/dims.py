"""Symbolic integers: the sizes of arrays, and the index expressions over named axes.

A `Dim` is a polynomial with integer coefficients in canonical form (a sorted sum of
products), so equal expressions are equal objects: `(M + 1) * 2 == 2 * M + 2`. Its atoms are

    Symbol(name, "size")     a dimension of the program, an integer >= 0
    Symbol(name, "axis")     an iteration axis, ranging over 0 <= axis < extent
    Symbol(name, "value")    an integer read from an array (a gathered index), any value
    Quotient(a, b), Remainder(a, b)     floor division, as Python's // and %
    Largest(a, b), Smallest(a, b)       maxima and minima (minitri/base/extremes.py)

What it leaves out: it never guesses. `a == b` false means "not the same polynomial", not
"different for all sizes"; `sign` answers only what holds term by term (for more: intervals.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, ClassVar, Literal, Union

from minitri.base.diagnostics import CompileError
from minitri.base.limits import check_product, current, exceeded

MAX_DEPTH = 50  # quotients, maxima, … in each other: walks over them recurse


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    kind: Literal["size", "axis", "value"] = "size"

    def is_never_negative(self) -> bool:
        return self.kind != "value"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Pair:
    """An atom made of two Dims; subclasses say which function of them it is."""

    a: Dim
    b: Dim
    depth: int = field(default=1, compare=False)  # pairs that stand in each other
    weight: int = field(default=1, compare=False)  # atoms in all
    of: ClassVar[Callable[[Dim, Dim], Dim]]  # the same function of two others

    def value(self, a: Any, b: Any, maximum: Any, minimum: Any) -> Any:
        """The function of two integers, or of two integer arrays."""
        raise NotImplementedError

    def is_never_negative(self) -> bool:
        """Whether this is proven to be >= 0 for all sizes."""
        raise NotImplementedError


Atom = Union[Symbol, Pair]
Monomial = tuple[Atom, ...]
DimLike = Union["Dim", int]


class Dim:
    """A canonical integer polynomial. Build with `Dim.of`, `size`, `axis` and + - * // %."""

    __slots__ = ("terms", "_hash", "_text")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: dict[Monomial, int]) -> None:
        kept = [(m, c) for m, c in terms.items() if c]
        if len(kept) > 1:
            kept.sort(key=_term_key)
        self.terms = tuple(kept)
        constant = self.constant
        self._hash = hash(self.terms) if constant is None else hash(constant)
        self._text: str | None = None

    @staticmethod
    def of(value: DimLike) -> Dim:
        return value if isinstance(value, Dim) else _constant(value)

    @property
    def constant(self) -> int | None:
        """The integer this is, or None if it has symbols."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def atom(self) -> Atom | None:
        """The atom this is, if it is exactly one."""
        if len(self.terms) == 1 and len(self.terms[0][0]) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0][0]
        return None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self.terms == other.terms
        return isinstance(other, int) and self.constant == other

    def __hash__(self) -> int:
        return self._hash

    def __int__(self) -> int:
        value = self.constant
        if value is None:
            raise TypeError(f"{self} is not a known integer")
        return value

    def __add__(self, other: DimLike) -> Dim:
        terms = dict(self.terms)
        for m, c in Dim.of(other).terms:
            terms[m] = terms.get(m, 0) + c
        return Dim(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Dim({m: -c for m, c in self.terms})

    def __sub__(self, other: DimLike) -> Dim:
        return self + -Dim.of(other)

    def __rsub__(self, other: DimLike) -> Dim:
        return Dim.of(other) + -self

    def __mul__(self, other: DimLike) -> Dim:
        terms: dict[Monomial, int] = {}
        right = Dim.of(other).terms
        if self.terms and right:  # the longest term stands first
            check_product(len(self.terms) * len(right), len(self.terms[0][0]) + len(right[0][0]))
        for m1, c1 in self.terms:
            for m2, c2 in right:
                m = tuple(sorted(m1 + m2, key=_atom_key)) if m1 and m2 else m1 + m2
                terms[m] = terms.get(m, 0) + c1 * c2
        return Dim(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> Dim:
        return floordiv(self, Dim.of(other))

    def __mod__(self, other: DimLike) -> Dim:
        return remainder(self, Dim.of(other))

    def __str__(self) -> str:
        if self._text is None:
            terms = sorted(self.terms, key=lambda t: t[1] < 0)  # i - M, not -M + i
            self._text = " ".join(_signed(k, m, c) for k, (m, c) in enumerate(terms)) or "0"
        return self._text

    __repr__ = __str__

    def atoms(self) -> Iterator[Atom]:
        for m, _ in self.terms:
            yield from m

    def symbols(self) -> frozenset[Symbol]:
        """Every symbol, including symbols inside quotients and remainders."""
        parts = ({a} if isinstance(a, Symbol) else a.a.symbols() | a.b.symbols() for a in self.atoms())
        return frozenset[Symbol]().union(*parts)

    def pairs(self) -> Iterator[Pair]:
        """Every quotient, remainder, maximum and minimum, inner ones first."""
        for atom in self.atoms():
            if isinstance(atom, Pair):
                yield from (*atom.a.pairs(), *atom.b.pairs(), atom)

    def substitute(self, env: Mapping[Symbol, DimLike]) -> Dim:
        """Replaces symbols, simultaneously."""
        if not env or not self.terms or not any(s in env for s in self.symbols()):
            return self

        def atom(a: Atom) -> DimLike:
            if isinstance(a, Symbol):
                return env.get(a, Dim({(a,): 1}))
            return a.of(a.a.substitute(env), a.b.substitute(env))

        return self.map_atoms(atom)

    def map_atoms(self, function: Callable[[Atom], DimLike]) -> Dim:
        out = ZERO
        for m, c in self.terms:
            out = out + reduce(lambda x, a: x * function(a), m, Dim.of(c))
        return out

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value under sizes given by name."""
        constant = self.constant
        return self.compute({s: env[s.name] for s in self.symbols()}) if constant is None else constant

    def compute(self, env: Mapping[Symbol, Any], maximum: Any = max, minimum: Any = min) -> Any:
        """The value with symbols bound to integers, or to integer arrays that broadcast."""
        total: Any = 0
        for m, c in self.terms:
            term: Any = c
            for a in m:
                if isinstance(a, Symbol):
                    term = term * env[a]
                else:
                    x, y = (d.compute(env, maximum, minimum) for d in (a.a, a.b))
                    term = term * a.value(x, y, maximum, minimum)
            total = total + term
        return total

    def coefficient(self, symbol: Symbol) -> tuple[Dim, Dim] | None:
        """(c, rest) with self == c * symbol + rest and neither holding `symbol`, or None."""
        linear, rest = split(self, Dim({(symbol,): 1}))
        return None if symbol in linear.symbols() | rest.symbols() else (linear, rest)


def _atom_key(atom: Atom) -> tuple[str, str]:
    """The order of factors; a dimension may be called `i`, as an axis is."""
    return str(atom), atom.kind if isinstance(atom, Symbol) else ""


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[tuple[str, str]]]:
    return -len(term[0]), list(map(_atom_key, term[0]))


def _signed(position: int, monomial: Monomial, c: int) -> str:
    sign = "-" if c < 0 else "+" if position else ""
    factors = [str(abs(c))] if abs(c) != 1 or not monomial else []
    factors += [f"({a})" if isinstance(a, (Quotient, Remainder)) else str(a) for a in monomial]
    if len(monomial) == 1 and not factors[:-1] and (position or c > 0):  # -(i//4) is not -i//4
        factors = [str(monomial[0])]
    text = "*".join(factors)
    return f"{sign} {text}" if position else f"{sign}{text}"


def _wrap(d: Dim) -> str:
    """In brackets, unless it is one name, number or function."""
    alone = d.constant is not None and d.constant >= 0 or d.atom is not None
    return str(d) if alone and not isinstance(d.atom, (Quotient, Remainder)) else f"({d})"


@lru_cache(maxsize=4096)
def _constant(value: int) -> Dim:
    return Dim({(): int(value)})


ZERO, ONE = Dim.of(0), Dim.of(1)


def size(name: str) -> Dim:
    return Dim({(Symbol(name, "size"),): 1})


def axis(name: str) -> Dim:
    return Dim({(Symbol(name, "axis"),): 1})


def value(name: str) -> Dim:
    return Dim({(Symbol(name, "value"),): 1})


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    return reduce(lambda a, b: a * b, dims, ONE)


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b; terms that b divides exactly leave the quotient: (4*M + i) // 4 = M + i // 4."""
    if b == 1:
        return a
    if a.constant is not None and b.constant:
        return Dim.of(a.constant // b.constant)
    whole, rest = split(a, b)
    if rest.constant is not None and b.constant:
        return whole + rest.constant // b.constant
    if isinstance(rest.atom, Quotient) and _is_count(rest.atom.b) and _is_count(b):  # (x // a) // b
        return whole + floordiv(rest.atom.a, rest.atom.b * b)
    return whole + paired(Quotient, rest, b) if rest.terms else whole


def _is_count(d: Dim) -> bool:
    """Whether this is a product of sizes and a number that is not negative."""
    return (
        len(d.terms) == 1
        and d.terms[0][1] > 0
        and all(isinstance(a, Symbol) and a.kind == "size" for a in d.terms[0][0])
    )


def remainder(a: Dim, b: Dim) -> Dim:
    """a % b; terms that b divides exactly vanish."""
    if a.constant is not None and b.constant:
        return Dim.of(a.constant % b.constant)
    _, rest = split(a, b)
    if rest.constant is not None and b.constant:
        return Dim.of(rest.constant % b.constant)
    if not rest.terms:
        return ZERO
    rest = rest.map_atoms(lambda x: x.a if isinstance(x, Remainder) and x.b == b else Dim({(x,): 1}))
    return paired(Remainder, rest, b)


class Quotient(Pair):
    __slots__ = ()
    of = staticmethod(floordiv)

    def value(self, a: Any, b: Any, maximum: Any, minimum: Any) -> Any:
        return a // b

    def __str__(self) -> str:
        return f"{_wrap(self.a)}//{_wrap(self.b)}"

    def is_never_negative(self) -> bool:
        return sign(self.a) in (0, 1) and sign(self.b) == 1


class Remainder(Pair):
    __slots__ = ()
    of = staticmethod(remainder)

    def value(self, a: Any, b: Any, maximum: Any, minimum: Any) -> Any:
        return a % b

    def __str__(self) -> str:
        return f"{_wrap(self.a)}%{_wrap(self.b)}"

    def is_never_negative(self) -> bool:
        return sign(self.b) == 1


def split(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """(w, r) with a == w * b + r, taking the terms that a one-term b divides."""
    if len(b.terms) != 1:
        return (ONE, ZERO) if a == b else (ZERO, a)
    (divisor, k) = b.terms[0]
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in a.terms:
        left = list(m)
        try:
            for x in divisor:
                left.remove(x)
        except ValueError:
            rest[m] = c
            continue
        if c % k == 0:
            whole[tuple(left)] = c // k
        elif not m:  # a constant over a constant: 7 = 1 * 4 + 3
            whole[()], rest[()] = divmod(c, k)
        else:
            rest[m] = c
    return Dim(whole), Dim(rest)


def paired(kind: type[Pair], a: Dim, b: Dim) -> Dim:
    """The pair itself, unless it is too deep or too large to walk over."""
    inner = [x for d in (a, b) for x in d.atoms()]
    depth = 1 + max((x.depth for x in inner if isinstance(x, Pair)), default=0)
    weight = 1 + sum(x.weight if isinstance(x, Pair) else 1 for x in inner)
    if depth > MAX_DEPTH:
        raise CompileError("MT0401", f"a size holds more than {MAX_DEPTH} divisions or maxima in each other")
    if weight > current().terms:
        raise exceeded("terms", f"a size has {weight:,} parts, the limit is {current().terms:,}")
    return Dim({(kind(a, b, depth, weight),): 1})


def sign(d: Dim, positive: frozenset[Symbol] = frozenset()) -> int | None:
    """1 if d >= 0 for all sizes (0 if always zero), -1 if d <= 0, None if neither is proven.

    Sizes are >= 0, those in `positive` >= 1: substituting s + 1 for them lets the rule
    "all coefficients have one sign" prove N - 1 >= 0.
    """
    if positive:
        d = d.substitute({s: Dim({(s,): 1}) + 1 for s in positive})
    if not d.terms:
        return 0
    if any(not a.is_never_negative() for a in d.atoms()):
        return None
    if all(c > 0 for _, c in d.terms):
        return 1
    return -1 if all(c < 0 for _, c in d.terms) else None
