"""Symbolic integers: the sizes of arrays, and index expressions over named axes.

A `Dim` is a polynomial with integer coefficients, stored in canonical form, as a sorted sum of products. Thanks to the
canonical form, equal polynomials such as `(M + 1) * 2` and `2 * M + 2` compare equal. A factor of a product is called
an atom, and is an object of one of these classes:

    Symbol(name, "size")     a size of a minitri program, such as M: an integer >= 0
    Symbol(name, "axis")     an iteration axis, with 0 <= axis < extent
    Symbol(name, "value")    an integer read from an array (a gathered index), with any value
    Quotient(a, b), Remainder(a, b)     floor division, as Python's // and %
    Largest(a, b), Smallest(a, b)       maxima and minima (minitri/base/symbolic_minmax.py)

This module cannot always decide whether two `Dim`s have the same value. Different polynomials can have equal values:
4*(i//4) + i%4 is always i. The function `sign` proves only simple inequalities. The files intervals.py and
inequalities.py can prove more inequalities than `sign`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache, reduce
from typing import Any, ClassVar, Literal, Union

from minitri.base.diagnostics import CompileError
from minitri.base.nodes import Record
from minitri.base.resource_limits import check_limit, check_product

MAX_DEPTH = 50  # levels of nested quotients, maxima, …: functions that visit these levels are recursive


class Symbol(Record):
    name: str
    kind: Literal["size", "axis", "value"] = "size"

    def is_never_negative(self) -> bool:
        return self.kind != "value"

    def __str__(self) -> str:
        return self.name


class Pair(Record):
    """A function of two `Dim`s that is not a polynomial, such as the quotient n // m.

    Each subclass of Pair stands for one function: the quotient, the remainder, the minimum or the maximum.
    """

    a: Dim
    b: Dim
    depth: int = field(default=1, compare=False)  # levels of nested pairs
    weight: int = field(default=1, compare=False)  # number of atoms, with those of nested pairs
    of: ClassVar[Callable[[Dim, Dim], Dim]]  # makes the same function of two other Dims
    value: ClassVar[Callable[[Any, Any], Any]]  # applies the function to two integers or integer arrays
    is_never_negative: ClassVar[Callable[..., bool]]  # checks whether, for example, n // m >= 0 is proven for all sizes


Atom = Union[Symbol, Pair]
Monomial = tuple[Atom, ...]
DimLike = Union["Dim", int]


class Dim:
    """An integer polynomial in canonical form. `Dim.of`, `size`, `axis` and the operators + - * // % make a `Dim`."""

    __slots__ = ("terms", "_hash", "_text", "_symbols")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: dict[Monomial, int]) -> None:
        kept = [(m, c) for m, c in terms.items() if c]
        if len(kept) > 1:
            kept.sort(key=lambda term: (-len(term[0]), list(map(_atom_key, term[0]))))  # the longest term comes first
        self.terms = tuple(kept)
        constant = self.constant
        self._hash = hash(self.terms) if constant is None else hash(constant)
        self._text: str | None = None
        self._symbols: frozenset[Symbol] | None = None

    @staticmethod
    def of(value: DimLike) -> Dim:
        return value if isinstance(value, Dim) else _constant(value)

    @property
    def constant(self) -> int | None:
        """The value of a polynomial without symbols, or None if the polynomial has symbols."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def atom(self) -> Atom | None:
        """The atom (symbol, quotient, maximum, …) that is equal to the polynomial, or None if no atom is equal."""
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
        if self.terms and right:  # the longest term comes first
            check_product(len(self.terms) * len(right), len(self.terms[0][0]) + len(right[0][0]))
        for m1, c1 in self.terms:
            for m2, c2 in right:
                m = tuple(sorted(m1 + m2, key=_atom_key)) if m1 and m2 else m1 + m2
                terms[m] = terms.get(m, 0) + c1 * c2
        return Dim(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> Dim:
        """Returns the quotient self // other. Example: `(4*M + i) // 4` is `M + i // 4`, because 4 divides `4*M`."""
        b = Dim.of(other)
        if b == 1:
            return self
        whole, rest = split(self, b)
        if rest.constant is not None and b.constant:
            return whole + rest.constant // b.constant
        if isinstance(rest.atom, Quotient) and _is_count(rest.atom.b) and _is_count(b):  # (x // a) // b
            return whole + rest.atom.a // (rest.atom.b * b)
        return whole + paired(Quotient, rest, b) if rest.terms else whole

    def __mod__(self, other: DimLike) -> Dim:
        """Returns the remainder self % other. Example: `(4*M + i) % 4` is `i % 4`, because 4 divides `4*M`."""
        b = Dim.of(other)
        _, rest = split(self, b)
        if rest.constant is not None and b.constant:
            return Dim.of(rest.constant % b.constant)
        if not rest.terms:
            return ZERO
        rest = rest.map_atoms(lambda x: x.a if isinstance(x, Remainder) and x.b == b else Dim({(x,): 1}))
        return paired(Remainder, rest, b)

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
        """Returns all symbols, including the symbols inside quotients, remainders, maxima and minima."""
        if self._symbols is None:
            parts = ({a} if isinstance(a, Symbol) else a.a.symbols() | a.b.symbols() for a in self.atoms())
            self._symbols = frozenset[Symbol]().union(*parts)
        return self._symbols

    def pairs(self) -> Iterator[Pair]:
        """Yields all quotients, remainders, maxima and minima in postorder: i//4 comes before (i//4)//2."""
        for atom in self.atoms():
            if isinstance(atom, Pair):
                yield from (*atom.a.pairs(), *atom.b.pairs(), atom)

    def substitute(self, env: Mapping[Symbol, DimLike]) -> Dim:
        """Replaces all symbols in `env` at once by their values in `env`: {i: j, j: i} swaps i and j."""
        if not env or not self.terms or not any(s in env for s in self.symbols()):
            return self
        return self.replace_atoms(env)

    def replace_atoms(self, env: Mapping[Any, DimLike]) -> Dim:
        """Replaces each atom in `env` (a symbol, quotient, remainder, maximum or minimum) by its value in `env`."""

        def atom(a: Atom) -> DimLike:
            if a in env or isinstance(a, Symbol):
                return env.get(a, Dim({(a,): 1}))
            return a.of(a.a.replace_atoms(env), a.b.replace_atoms(env))

        return self.map_atoms(atom)

    def map_atoms(self, function: Callable[[Atom], DimLike]) -> Dim:
        out = ZERO
        for m, c in self.terms:
            out = out + reduce(lambda x, a: x * function(a), m, Dim.of(c))
        return out

    def evaluate(self, env: Mapping[str, int]) -> int:
        """Returns the value of the polynomial for known sizes. `env` maps the names of the sizes to numbers."""
        return self.compute({s: env[s.name] for s in self.symbols()})

    def compute(self, env: Mapping[Symbol, Any]) -> Any:
        """Returns the value of the polynomial. `env` maps each symbol to an integer, or to an integer array.

        The arrays in `env` must have shapes that broadcast.
        """
        total: Any = 0
        for m, c in self.terms:
            term: Any = c
            for a in m:
                term = term * (env[a] if isinstance(a, Symbol) else a.value(a.a.compute(env), a.b.compute(env)))
            total = total + term
        return total

    def solved(self, varies: Callable[[Symbol], bool]) -> tuple[Symbol, int, Dim] | None:
        """Solves the condition `self >= 0` for one symbol s. For example, N - 1 - i >= 0 means i < N, so the result is
        (i, -1, N): the symbol, the direction and the bound.

        The second item of the result is 1 for `s >= bound`, and -1 for `s < bound`. Symbols for which `varies` returns
        True are tried first. The returned bound contains only symbols s for which `varies(s)` is false. Returns None if
        no symbol of the condition can be isolated.
        """
        symbols = [s for s in self.symbols() if s.kind != "size"]
        for symbol in sorted(symbols, key=lambda s: (not varies(s), s.name)):
            sign, rest = self.coefficient(symbol) or (ZERO, ZERO)
            if sign in (1, -1) and not any(map(varies, rest.symbols())):
                return (symbol, 1, -rest) if sign == 1 else (symbol, -1, rest + 1)
        return None

    def coefficient(self, symbol: Symbol) -> tuple[Dim, Dim] | None:
        """Returns (c, rest) with self == c * symbol + rest, where neither c nor rest contains `symbol`.

        Returns None if the Dim is not linear in `symbol`.
        """
        linear, rest = split(self, Dim({(symbol,): 1}))
        return None if symbol in linear.symbols() | rest.symbols() else (linear, rest)


def _atom_key(atom: Atom) -> tuple[str, str]:
    """Returns a sort key for a factor of a product."""
    # with the kind, since a size and an axis can have the same name
    return str(atom), atom.kind if isinstance(atom, Symbol) else ""


def _signed(position: int, monomial: Monomial, c: int) -> str:
    sign = "-" if c < 0 else "+" if position else ""
    factors = [str(abs(c))] if abs(c) != 1 or not monomial else []
    factors += [f"({a})" if isinstance(a, Division) else str(a) for a in monomial]
    if len(monomial) == 1 and not factors[:-1] and (position or c > 0):  # -(i//4) is not -i//4
        factors = [str(monomial[0])]
    text = "*".join(factors)
    return f"{sign} {text}" if position else f"{sign}{text}"


def _wrap(d: Dim) -> str:
    """Returns an integer expression as text, with brackets around an expression such as `n + 1`."""
    # a name, a number >= 0 or a call such as `max(a, b)` needs no brackets
    alone = d.constant is not None and d.constant >= 0 or d.atom is not None
    return str(d) if alone and not isinstance(d.atom, Division) else f"({d})"


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


def _is_count(d: Dim) -> bool:
    """Checks whether an expression is a product of sizes and one positive number, such as `4*M*N`."""
    monomial, c = d.terms[0] if len(d.terms) == 1 else ((), 0)
    return c > 0 and all(isinstance(a, Symbol) and a.kind == "size" for a in monomial)


class Division(Pair):
    """A quotient or a remainder of two Dims."""

    __slots__ = ()
    symbol: ClassVar[str]

    def __str__(self) -> str:
        return f"{_wrap(self.a)}{self.symbol}{_wrap(self.b)}"


class Quotient(Division):
    __slots__ = ()
    of, value, symbol = operator.floordiv, operator.floordiv, "//"

    def is_never_negative(self) -> bool:
        return sign(self.a) in (0, 1) and sign(self.b) == 1


class Remainder(Division):
    __slots__ = ()
    of, value, symbol = operator.mod, operator.mod, "%"

    def is_never_negative(self) -> bool:
        return sign(self.b) == 1


def split(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Divides the polynomial a by the polynomial b: returns a quotient w and a rest r with a == w * b + r.

    If b has one term, each term of the polynomial a is divided by b. A term that is not a multiple of b goes into the
    rest. If this term and b are numbers, only the remainder goes into the rest, such as 3 for 7 and 4. For example,
    `4*M + i` divided by 4 has the quotient M and the rest i. For a sum b of several terms, the quotient is 1 if a == b,
    and otherwise 0.
    """
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
    """Returns a quotient, remainder, maximum or minimum of a and b as a Dim.

    Raises CompileError MT0401 if the operations are nested too deeply, or if a Dim has too many parts.
    """
    inner = [x for d in (a, b) for x in d.atoms()]
    depth = 1 + max((x.depth for x in inner if isinstance(x, Pair)), default=0)
    weight = 1 + sum(x.weight if isinstance(x, Pair) else 1 for x in inner)
    if depth > MAX_DEPTH:
        raise CompileError("MT0401", f"a size holds more than {MAX_DEPTH} divisions or maxima in each other")
    check_limit("terms", weight, "a size has {count:,} parts, the limit is {limit:,}")
    return Dim({(kind(a, b, depth, weight),): 1})


def axis_names(exprs: Iterable[Dim]) -> set[str]:
    """Returns the names of the axes in some expressions."""
    return {s.name for d in exprs for s in d.symbols() if s.kind == "axis"}


def sign(d: Dim, positive: frozenset[Symbol] = frozenset()) -> int | None:
    """Returns the sign of the expression d if the sign is proven for all sizes, and otherwise None.

    The result 1 means that d >= 0 is proven, and -1 means that d <= 0 is proven. The result is 0 if d is the polynomial
    0. The sign is proven if all coefficients have the same sign, and all factors of the terms are >= 0. The sizes in
    the set `positive` are >= 1. A size N >= 1 is written as M + 1 with M >= 0, so that N - 1 becomes M.
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
