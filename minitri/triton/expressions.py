"""Writes expressions and lines of Triton source: numbers, conversions, indices and conditions.

    -1.5 of f32                  tl.full((), -1.5, tl.float32)
    i + 2*r of f32[i, r]         i[:, None] + r[None, :] * 2
    i < 777                      the line m3 = i < 777, then the name m3

The functions take parts of a tile program: values with their dtypes, and index expressions. The functions return Triton
source text. In the source text, `rt` is the module minitri/triton/rt.py. If a part of an expression depends only on
sizes, the CPU computes this part at each launch. A value that the CPU computes is an argument of the kernel. The
operator table (minitri/base/operators.py) has the spelling of each elementwise operator in Triton.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from minitri.base.dims import Atom, Dim, Division, Quotient, Symbol, value
from minitri.base.intervals import is_natural
from minitri.base.resource_limits import check_time
from minitri.base.symbolic_minmax import Largest
from minitri.base.types import DType, f32
from minitri.kernels.ir import Op, Picks
from minitri.tiles.ir import Program, index_ranges, isolated, on_host

STEP = "    "


# ---- lines ---------------------------------------------------------------------------------


class Lines:
    """Collects the lines of one Triton function.

    `texts`: the lines of source text, including their indentation. A line computes at most one operation.
    `ops`: pairs of a line number, counted from 1, and the operation that the line computes.
    `sizes`: maps each expression over unknown sizes to the name of a kernel argument.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.ops: list[tuple[int, Op]] = []
        self.sizes: dict[Dim, str] = {}
        self.indent = STEP

    def add(self, text: str, op: Op | None = None) -> None:
        check_time()
        self.texts.append(self.indent + text)
        if op is not None:
            self.ops.append((len(self.texts), op))

    def size(self, d: Dim) -> str:
        """Returns the source text of a size. A known size is an integer literal. An unknown size is the name of a
        kernel argument, whose value the host computes.
        """
        if d.constant is not None:
            return str(d.constant)
        return self.sizes.setdefault(d, f"s{len(self.sizes)}")

    @contextmanager
    def within(self, head: str) -> Iterator[None]:
        """Adds the line `head`, which begins with `for`, `if` or `else`. Lines that are added inside the `with` block
        are indented below `head`.
        """
        self.add(head)
        outer, self.indent = self.indent, self.indent + STEP
        yield
        self.indent = outer


# ---- numbers and conversions ---------------------------------------------------------------


def constant(value: int | float | bool, dtype: DType) -> str:
    """Returns the source text of a constant, which becomes a 0-d tensor.

    -0.0 is written as the product `0.0 * -1.0`, because Triton turns every number that equals zero into +0.0.
    """
    if dtype.name == "bf16" and value != 0:  # the only bf16 constant in the interpreter of Triton 3.6 is 0
        return f"rt.to_bf16({constant(value, f32)})"
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return f"tl.full((), 0.0, tl.{dtype.triton}) * -1.0"
    return f"tl.full((), {number(value)}, tl.{dtype.triton})"


def other_value(value: int | float | bool, dtype: DType) -> str:
    """Returns the argument `other` of a masked load: the value of elements that the load does not read."""
    return constant(value, dtype) if dtype.name == "bf16" and value != 0 else number(value)


def number(value: int | float | bool) -> str:
    """Returns a number as Python source.

    Infinity and NaN are written as calls such as `float("inf")`, because Python has no literals for them.
    """
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{"nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}")'
    return repr(value)


def convert(name: str, source: DType, target: DType) -> str:
    """Returns the source text of a conversion between dtypes, as docs/reference/semantics.md defines conversions."""
    if source == target:
        return name
    if source.is_float and source.bits == 16:
        name = f"rt.to_f32({name})"
        return name if target.name == "f32" else convert(name, f32, target)
    if target.kind == "b":
        return f"rt.to_bool({name})"
    if source.is_integer and source.bits == 8 and target.name == "f16":
        return f"rt.byte_to_f16({name})"
    if target.is_float and target.bits == 16:
        wide = name if source.is_float else f"{name}.to(tl.float32)"
        return f"rt.to_{target.name}({wide})"
    if source.is_float and target.is_integer:
        return f"rt.float_to_int({name}, tl.{target.triton})"
    return f"{name}.to(tl.{target.triton})"


# ---- values, indices and conditions --------------------------------------------------------


class Expressions:
    """Writes expressions over the values and axes of one tile program.

    `extents`: the number of elements of a tile along each axis. `extents` lacks the axes along which a tile has one
        element.
    `names`: maps each operation that is already computed to its name in the source, such as v3.
    `predicates`: a dict from each computed condition to its variable in the source, such as m5. In a condition, names
        such as v3 stand for loaded values.
    """

    def __init__(self, program: Program, lines: Lines) -> None:
        self.wide, self.lines, self.size = program.wide, lines, lines.size
        self.extents = {a.name: a.lanes for a in program.axes if a.block > 1}
        self.ranges = index_ranges(program)
        self.names: dict[Op, str] = {}
        self.predicates: dict[Dim, str] = {}

    def lanes(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Returns the axes in `axes` along which tiles have several elements. The returned axes are in the program's
        order.
        """
        axes = set(axes)
        return tuple(a for a in self.extents if a in axes)

    def shape(self, context: tuple[str, ...]) -> str:
        return f"({''.join(f'{self.extents[a]}, ' for a in context)})"

    def value(self, op: Op, context: tuple[str, ...]) -> str:
        return _aligned(self.names[op], self.lanes(op.axes), context)

    def index(self, d: Dim, context: tuple[str, ...] = (), picks: Picks = ()) -> str:
        """Returns the source text of an index expression. The expression can contain axes, and symbols for computed
        values. The argument `picks` pairs each symbol of a computed value with this value.
        """
        bound = dict(picks)
        free, products = on_host(d)
        parts: list[str] = []
        for sign, factor, atoms in products:
            words = [self._atom(a, context, bound) for a in atoms] + ([self.size(factor)] if factor != 1 else [])
            parts.append(("- " if sign < 0 else "+ ") + " * ".join(words))
        if free.terms or not parts:
            known = free.constant
            parts.append(f"- {-known}" if known is not None and known < 0 else f"+ {self.size(free)}")
        parts.sort(key=lambda p: p[0] == "-")
        text = " ".join(parts)
        return text[2:] if text.startswith("+ ") else "-" + text[2:]

    def _atom(self, a: Atom, context: tuple[str, ...], bound: dict[Symbol, Op]) -> str:
        if isinstance(a, Symbol):
            if a.kind == "value":
                return self.value(bound[a], context)
            if a.name.endswith("_start") and self.wide:
                return f"(tl.full((), 0, tl.int64) + {a.name})"
            return _aligned(a.name, self.lanes([a.name.removesuffix("_lane")]), context)
        picks = tuple(bound.items())
        x, y = self.index(a.a, context, picks), self.index(a.b, context, picks)
        if isinstance(a, Division):
            if is_natural(a.a, self.ranges):
                return f"(({x}) {a.symbol} {operand(y)})"
            return f"rt.{'floordiv' if isinstance(a, Quotient) else 'remainder'}({x}, {y})"
        return f"tl.{'maximum' if isinstance(a, Largest) else 'minimum'}({x}, {y})"

    def predicate(self, conditions: Sequence[Dim], context: tuple[str, ...], picks: Picks = ()) -> str:
        """Returns the source text of a test that is true if all conditions are true. Each condition is an expression
        that must be >= 0.

        Each condition gets a line of its own, so that it is computed only once. Later masks with the same condition use
        the condition's name, such as `m3`.
        """
        tests = [self._test(c, context, picks) for c in conditions]
        if context and not any(self.index_lanes(c, picks) for c in conditions):
            tests.insert(0, f"tl.full({self.shape(context)}, 1, tl.int1)")  # a mask has the shape of its tile
        return " & ".join(tests)

    def index_lanes(self, d: Dim, picks: Picks) -> tuple[str, ...]:
        """Returns the axes that an index expression depends on. Axes along which tiles have a single element are left
        out of the result.
        """
        symbols = d.symbols()
        axes = {s.name.removesuffix("_lane") for s in symbols if s.kind == "axis"}
        return self.lanes(axes | {a for s, v in picks if s in symbols for a in v.axes})

    def _test(self, condition: Dim, context: tuple[str, ...], picks: Picks) -> str:
        used = tuple((s, v) for s, v in picks if s in condition.symbols())
        own = self.index_lanes(condition, picks)
        key = condition.substitute({s: value(self.names[v]) for s, v in used})
        if key not in self.predicates:
            self.predicates[key] = f"m{len(self.lines.texts)}"
            text = self._condition(condition, own, used)
            # In the interpreter a scalar comparison is an integer; `rt.to_bool` makes it a truth value.
            self.lines.add(f"{self.predicates[key]} = {text if own else f'rt.to_bool({text})'}")
        return _aligned(self.predicates[key], own, context)

    def _condition(self, d: Dim, context: tuple[str, ...], picks: Picks) -> str:
        """Returns the source text of a condition, such as `i < 777` for `776 - i >= 0`."""
        found = isolated(d, self.extents)
        if found is None:
            return f"{self.index(d, context, picks)} >= 0"
        symbol, sign, bound = found  # a single axis is on the left side
        left = self.index(Dim({(symbol,): 1}), context, picks)
        return f"{left} {'<' if sign == -1 else '>='} {self.index(bound, context)}"


def operand(text: str) -> str:
    """Returns the text of an expression. An expression that is neither a name nor a number gets parentheses."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _aligned(name: str, own: tuple[str, ...], context: tuple[str, ...]) -> str:
    """Adds an index such as `[:, None]` to a tile's name, so that the tile broadcasts to the axes `context`."""
    if own == context or not own:  # `own` are the axes of the tile
        return name
    return f"{name}[{', '.join(':' if a in own else 'None' for a in context)}]"
