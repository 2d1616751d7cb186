"""Interprets names, numbers and attributes in the text of a compilation stage.

The functions of this module convert syntax nodes (stage_parser.py) to dimensions, dtypes, constants and names. If the
text is wrong, the functions raise a `Mistake` with a position in the text. The class `Names` knows the meaning of each
name, and computes the polynomial (`Dim`) of an expression. The size of a polynomial is limited, because the text of a
stage is not trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import Dim, size
from minitri.base.symbolic_minmax import largest, smallest
from minitri.base.types import DType, dtype
from minitri.language.ast import BINARY
from minitri.language.parser import is_name
from minitri.text_io.stage_parser import MAX_NESTING, MAX_NUMBER, Attributes, Mistake, Node, Text, expect

MAX_TERMS = 500  # terms of a polynomial, and factors of a term


@dataclass
class Names:
    """Maps the names in expressions to dimensions, axes and values.

    `sizes`: the dimensions in the types of the inputs, by name.
    `axes`: the axes that the current line of the text can use, by name.
    `value`: a function that returns the symbol of a name such as `%3` or `@0`. `value` returns None for an unknown
        name.
    """

    sizes: dict[str, Dim] = field(default_factory=dict)
    axes: Mapping[str, Dim] = field(default_factory=dict)
    value: Callable[[Node], Dim | None] = lambda _: None

    def dim(self, e: Node) -> Dim:
        """Returns the polynomial of an expression. The left operands of an expression are visited by a loop, because
        recursion would be too deep for a long sum.
        """
        rights: list[tuple[Node, Node]] = []
        while e.kind in BINARY:
            rights.append((e, e.parts[1]))
            e = e.parts[0]
        result = self._atom(e)
        for whole, right in reversed(rights):
            operand = self.dim(right)
            expect(whole.kind not in ("//", "%") or operand != 0, right, "this divides by zero")
            result = _small(BINARY[whole.kind](result, operand), whole)
        return result

    def _atom(self, e: Node) -> Dim:
        match e.kind:
            case "number" if isinstance(e.parts[0], int):
                return Dim.of(e.parts[0])
            case "name":
                return self._named(e)
            case "neg":
                return -self.dim(e.parts[0])
            case "max" | "min":
                return (largest if e.kind == "max" else smallest)(*self.dims(e.parts))
        raise Mistake(e, "a whole number is wanted here, or an expression that is one")

    def _named(self, e: Node) -> Dim:
        name = e.name
        found = self.axes.get(name) or self.sizes.get(name.removeprefix("$")) or self.value(e)
        if found is not None:
            return found
        what = "value" if name[0] in "%@" else "axis or dimension" if self.axes else "dimension"
        raise Mistake(e, f"there is no {what} `{name[:40]}` here", suggest(name, [*self.axes, *self.sizes]))

    def declare(self, e: Node) -> None:
        """Declares each name in the type of an input, such as N in `f32[N]`, as a dimension."""

        def declared(e: Node) -> Dim:
            expect(is_name(e.name), e, f"`{e.name[:40]}` cannot name a dimension")
            return self.sizes.setdefault(e.name, size(e.name))

        Names(self.sizes, value=declared).dim(e)

    def dims(self, exprs: Iterable[Node]) -> tuple[Dim, ...]:
        return tuple(map(self.dim, exprs))

    def shape(self, exprs: Sequence[Node]) -> tuple[Dim, ...]:
        """Computes the shape of an array from the syntax nodes of its sizes. Raises Mistake if a size contains an axis
        instead of a dimension.
        """
        found = self.of_sizes.dims(exprs)
        for e, d in zip(exprs, found):
            expect(d.constant is None or 0 <= d.constant < 2**40, e, "a size is a number from 0 to 2**40 - 1")
        return found

    @property
    def of_sizes(self) -> Names:
        """Returns the names that a size can contain: dimensions, but no axes and no values."""
        return Names(self.sizes)

    def condition(self, e: Node) -> Dim:
        """Returns an expression that is >= 0 exactly if the condition `e` holds.

        For the condition `a < b`, the result is b - a - 1. For the condition `a >= b`, the result is a - b.
        """
        expect(e.kind in ("<", ">="), e, "a condition is written `a < b` or `a >= b`")
        a, b = self.dims(e.parts)
        return b - a - 1 if e.kind == "<" else a - b


def _small(d: Dim, place: Text) -> Dim:
    """Returns a polynomial unchanged, or raises an error if the polynomial is too large."""
    if len(d.terms) > MAX_TERMS or any(len(m) > MAX_NESTING or abs(c) >= MAX_NUMBER for m, c in d.terms):
        raise Mistake(place, "this expression has too many terms, or too large numbers", code="MT0401")
    return d


# ---- dtypes, numbers, lists and attributes -----------------------------------------------------


def read_dtype(type: Node) -> DType:
    try:
        return dtype(type.parts[0].name)
    except CompileError as error:
        raise Mistake(type, error.message, error.help, error.code) from None


def read_number(e: Node, dtype: DType) -> int | float | bool:
    """Returns the value of a constant of the dtype `dtype`. Floats are rounded to the dtype.

    Raises Mistake if the value does not fit the dtype.
    """
    sign, inner = (-1, e.parts[0]) if e.kind == "neg" else (1, e)
    if inner.kind == "name" and sign == 1 and dtype.kind == "b" and inner.name in ("true", "false"):
        return inner.name == "true"
    if inner.kind == "name" and dtype.is_float and inner.name in ("inf", "nan"):
        return sign * float(inner.name)
    value = sign * inner.parts[0] if inner.kind == "number" else None
    if isinstance(value, int) and not dtype.is_float and dtype.limits[0] <= value <= dtype.limits[1]:
        return value
    if value is None or not dtype.is_float:
        raise Mistake(e, f"a number of the dtype {dtype} is wanted here")
    with np.errstate(all="ignore"):
        return value if isinstance(value, int) and abs(value) <= 2048 else float(np.asarray(float(value), dtype.numpy))


def check_attributes(attributes: Attributes, known: Sequence[str]) -> None:
    """Raises Mistake if the name of an attribute is not in `known`."""
    for name, value in attributes.items():
        if name not in known:
            there = f"there is {', '.join(known)}" if known else "none is known"
            raise Mistake(value, f"`{name[:40]}` is no attribute of this line", suggest(name, known) or there)


def read_list(e: Node) -> tuple[Node, ...]:
    expect(e.kind == "list", e, "a list is wanted here, `[…]`")
    return e.parts[0]


def read_text(e: Node) -> str:
    expect(e.kind == "text", e, "a text in double quotes is wanted here")
    return e.parts[0]


def read_identifier(e: Node, taken: Iterable[str] = ()) -> str:
    """Returns the name of a parameter or buffer. Raises Mistake if the name is not valid, or if `taken` contains the
    name.
    """
    expect(is_name(e.name), e, f"`{e.name[:40]}` cannot be a name", "names are ASCII letters, digits and `_`")
    expect(e.name not in taken, e, f"`{e.name}` is there already")
    return e.name
