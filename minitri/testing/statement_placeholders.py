"""Fills the placeholders in the statements of statement_forms.toml with names, axes and sizes of small programs.

    {y} → w, a value that broadcasts with x        {MK} → a, a new matrix        {axis} → 1

A placeholder stands either for a value that an earlier statement computed, or for a new parameter with a sample array:

    x: f16[N, 2 * N]     →     Value(a numpy array of the shape (3, 6), f16, exact)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from minitri.base.nodes import Record
from minitri.base.types import DTYPES, DType, promote
from minitri.testing.random_arrays import elements
from minitri.testing.statement_writer import Filled, StatementWriter, refuse_if, words

SIZES = (3, 1, 2, 7, 0, 17, 33, 130)
DTYPE_CHOICES = ("f32", "f16", "bf16", "f64", "i32", "i64", "i8", "u8", "i16", "u16", "u32", "u64", "bool")
MAX_ELEMENTS = 20_000  # the most elements of a value
NAMES = ("N", "M", "K", "D")
PARAMETERS = "xywzabcdefgh"
INDEX_DTYPES = ("i64", "i32", "u8")
SIGNED = INDEX_DTYPES[:2]
SIDES = (16, 32, 48, 64, 5, 17, 33, 40)  # sizes of matrices in parts of models; tensor cores need multiples of 16


class Axis(NamedTuple):
    """An axis of a parameter. The field `text` is the size of the axis as the program writes it, such as `2 * N`. The
    field `size` is the size of the axis in the sample array.
    """

    text: str
    size: int


class Parameter(Record):
    """A parameter of a program. The elements of the parameter's array are drawn from the range `low` to `high`."""

    name: str
    type: str
    low: float
    high: float


class Value(Record):
    """The value that a parameter or variable of a program has for the sample arrays.

    If the attribute `exact` of a sample value is true, every stage must compute this value bit for bit.
    """

    data: Any
    dtype: DType
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.data)

    @property
    def largest(self) -> float:
        """The largest absolute value of the finite elements."""
        wide = np.abs(np.asarray(self.data, np.float64))
        return float(np.max(wide, where=np.isfinite(wide), initial=0))

    @property
    def overflows(self) -> bool:
        return bool(np.isinf(np.asarray(self.data, np.float64)).any())


class FormFiller(StatementWriter):
    """Fills the placeholders of a form, which is a statement with placeholders (statement_forms.toml).

    `sides`: the possible sizes of the axes of a new matrix (the placeholder {MK}).
    `sizes`: the size of each dimension, by name, such as {"N": 3}.
    `axes`: the axes of each parameter, by name.
    """

    drawn_again = frozenset({"place", "next_place", "size", "dimension", "alike", "same"})

    def __init__(self, table: Mapping[str, Any], choose: Callable[[Sequence[Any]], Any], sides: Sequence[int]) -> None:
        super().__init__(table, choose)
        self.sides = sides
        self.sizes: dict[str, int] = {}
        self.axes: dict[str, tuple[Axis, ...]] = {}

    def placeholder(self, name: str, filled: Filled) -> Any:
        x = self.values[filled["x"]]
        *prefix, letters = name.rpartition("_")
        if letters.isupper():
            return self._of_sides(prefix[0], letters, filled)
        return PLACEHOLDERS[name](self, filled, x)

    def required(self, options: Sequence[Any]) -> Any:
        """Returns one of the given options, chosen at random. Raises DoesNotFit if there are no options."""
        refuse_if(not options)
        return self.choose(options)

    # ---- values and parameters ---------------------------------------------------------------

    def chance(self, odds: int) -> bool:
        """Returns True with the probability 1 / `odds`. When a failing program is shrunk, the search tries False
        in place of True.
        """
        return self.choose(range(odds)) == odds - 1

    def found(self, suits: Callable[[Value], bool]) -> str | None:
        """Returns the name of a value for which `suits` is true, or None if there is no such value.

        If `suits` is true for several values, the function prefers the values that were added to the program last.
        """
        found = [n for n, v in reversed(self.values.items()) if n != "s" and suits(v)]
        return self.choose([*found[:1], *found[:1], *found[:3], *found]) if found else None

    def dimensions(self) -> dict[str, int]:
        """Returns the size of each dimension that occurs in the type of a parameter."""
        named = {word for p in self.arrays.values() for word in words(p.type)}
        return {n: s for n, s in self.sizes.items() if n in named}

    def new_axes(self, rank: int | None = None, room: int = MAX_ELEMENTS) -> tuple[Axis, ...]:
        axes: list[Axis] = []
        for _ in range(self.choose((1, 2, 2, 3, 0)) if rank is None else rank):
            axes.append(self.new_axis(room // max(1, math.prod(a.size for a in axes))))
        return tuple(axes)

    def new_axis(self, room: int) -> Axis:
        fitting = [n for n, s in self.sizes.items() if s <= room]
        new = [n for n in NAMES if n not in self.sizes][:1]
        form = self.choose(("name", "name", "name", "number", "more"))
        if form == "number" or not (fitting or new):
            size = self.choose([s for s in SIZES if s <= min(room, 33)])
            return Axis(str(size), size)
        name = self.choose([*new, *fitting, *new])
        if name not in self.sizes:
            self.sizes[name] = self.choose([s for s in SIZES if s <= room])
        size = self.sizes[name]
        alone = any(a.text == name for array in self.arrays for a in self.axes[array])
        if form == "more" and 2 * size + 1 <= room and alone:
            return self.choose((Axis(f"{name} + 1", size + 1), Axis(f"2 * {name}", 2 * size)))
        return Axis(name, size)

    def array(self, dtype: str, axes: Sequence[Axis], low: float = -4, high: float = 4) -> str:
        """Adds a new array parameter and returns its name."""
        count = len(self.arrays)
        name = PARAMETERS[count] if count < len(PARAMETERS) else f"p{count}"
        kind, shape = DTYPES[dtype], tuple(a.size for a in axes)
        data = np.array(elements(kind, np.random.default_rng(count), low, high, shape, usual=False))
        if kind.is_integer and (low, high) == (-4, 4):
            data.flat[: data.size // 3] = kind.limits[1]  # arguments may have such elements
        type = f"{dtype}[{', '.join(a.text for a in axes)}]"
        return self.parameter(Parameter(name, type, low, high), Value(data, kind, True), axes)

    def parameter(self, parameter: Parameter, value: Value, axes: Sequence[Axis] = ()) -> str:
        name = parameter.name
        self.arrays[name], self.values[name], self.axes[name] = parameter, value, tuple(axes)
        return name

    def size(self, name: str, k: int) -> str:
        """Returns how a program writes the size of an axis, such as `2 * N` for a parameter and `v1.shape[0]` for a
        variable.
        """
        return self.axes[name][k].text if name in self.arrays else f"{name}.shape[{k}]"

    # ---- other operands ----------------------------------------------------------------------

    def partner(self, filled: Filled, x: Value, kinds: str = "fiub") -> str:
        """Returns the name of a second operand for x: another value that broadcasts with x, or a new parameter. If no
        existing value broadcasts with x, the function always adds a parameter.

        The statement accepts the dtype that results from promoting x and the second operand.
        """
        of = self.kinds[filled.kind].get("of", "fiub") if kinds == "fiub" else "fiub"

        def takes(dtype: Any) -> bool:
            return dtype.kind in kinds and promote(x.dtype, dtype).kind in of

        def suits(v: Value) -> bool:
            return v is not x and takes(v.dtype) and _broadcast(x.shape, v.shape) <= MAX_ELEMENTS

        name = self.found(suits)
        if name is not None and not self.chance(3):
            return name
        axes = [self.axis_of(n) for n in x.shape[self.choose(range(len(x.shape) + 1)) :]]
        dtypes = [d for d in (x.dtype.name, *DTYPE_CHOICES) if takes(DTYPES[d])]
        dtype = self.choose([*dtypes[:1] * 2, *dtypes])
        return self.array(dtype, [Axis("1", 1) if self.chance(4) else a for a in axes])

    def axis_of(self, size: int) -> Axis:
        """Returns an axis of the given size. A random choice decides whether the program writes the size of the axis as
        a number or as a dimension such as `N`.
        """
        return self.choose([*(Axis(n, s) for n, s in self.sizes.items() if s == size), Axis(str(size), size)])

    def alike(self, filled: Filled, x: Value, but: int | None = None) -> str:
        """Chooses a value with the same shape as x, and returns the name of the value.

        Along the axis `but`, the sizes can differ.
        """
        axes = [k for k in range(len(x.shape)) if k != but]

        def suits(v: Value) -> bool:
            return len(v.shape) == len(x.shape) and all(v.shape[k] == x.shape[k] for k in axes)

        return self.found(suits) or filled["x"]

    def factor(self, filled: Filled, x: Value) -> str:
        """Returns the name of a second factor y for the matrix product `x @ y`. A random choice decides between an
        existing value and a new parameter. If no existing value has a shape that fits x, y is a new parameter.
        """
        name = self.found(lambda v: _product(x.shape, v.shape) <= MAX_ELEMENTS)
        if name is not None and self.choose((True, False)):
            return name
        rows, columns = self.axis_of(x.shape[-1]), self.new_axis(130)
        axes = [rows, columns] if self.choose((True, True, False)) else [rows]
        if len(x.shape) > 2 and len(axes) == 2 and self.chance(3):
            axes = [*map(self.axis_of, x.shape[:-2]), *axes]
        refuse_if(_product(x.shape, [a.size for a in axes]) > MAX_ELEMENTS)
        return self.array(self.choose([x.dtype.name] * 4 + [self.choose((*DTYPE_CHOICES[:4], "i32"))]), axes)

    def indices(self, axes: Sequence[Axis], extent: int, dtypes: Sequence[str]) -> str:
        """Adds a new parameter whose elements are indices, and returns its name.

        Some indices are negative, and a few are out of range.
        """
        dtype = self.choose(dtypes)
        wild = 2 if self.chance(5) else 0
        return self.array(dtype, axes, 0 if dtype == "u8" else -extent - wild, max(extent - 1, 0) + wild)

    def index(self, filled: Filled, x: Value, dtypes: Sequence[str] = INDEX_DTYPES) -> str:
        extent = x.shape[filled["axis"]]
        room = MAX_ELEMENTS * max(1, extent) // max(1, math.prod(x.shape))
        return self.indices(self.new_axes(self.choose((1, 2, 0)), room), extent, dtypes)

    def along(self, filled: Filled, x: Value) -> str:
        k = filled["axis"]
        axes = [self.new_axis(33) if j == k else self.axis_of(n) for j, n in enumerate(x.shape)]
        return self.indices(axes, x.shape[k], INDEX_DTYPES)

    def _of_sides(self, prefix: str, letters: str, filled: Filled) -> str:
        """Adds an array for a placeholder such as {MK}, and returns its name."""
        axes = []
        for letter in letters:
            # within one statement, a letter (an axis) always has the same size
            side = filled[f"side {letter}"] = filled.get(f"side {letter}") or self.choose(self.sides)
            axes.append(Axis(str(side), side))
        if prefix == "size":
            return axes[0].text  # {size_M} stands for the size of the axis M
        dtype = prefix  # as in {i8_MK}
        if not prefix:
            # one dtype for all placeholders without a prefix in a statement
            dtype = filled["real"] = filled.get("real") or self.choose(("f32", "f16", "bf16"))
        return self.array(dtype, axes, *((-1, 1) if DTYPES[dtype].is_float else (-20, 20)))

    # ---- axes and sizes ----------------------------------------------------------------------

    def some_size(self, filled: Filled, x: Value) -> str:
        """Returns a size that a statement can use: a dimension or an integer."""
        named = [n for n, s in self.dimensions().items() if s <= 33]
        return self.choose(["2", *named, "3", "1", "17", *named])

    def place(self, filled: Filled, x: Value, step: int = 0) -> str:
        """Returns the indices along an axis of x as text, such as `arange(N)[:, None]`. The array of indices broadcasts
        with x.

        If `step` is 0, the method chooses the axis at random (placeholder {place}). If `step` is 1, the method uses the
        axis before the axis of the previous call (placeholder {next_place}).
        """
        rank = len(x.shape)
        k = (filled["last place"] - step) % rank if step else self.choose(range(rank)[::-1])
        filled["last place"] = k
        later = rank - 1 - k
        return f"arange({self.size(filled['x'], k)})" + (f"[:{', None' * later}]" if later else "")


PLACEHOLDERS: dict[str, Callable[[FormFiller, Filled, Value], Any]] = {
    "y": FormFiller.partner, "int": lambda w, f, x: w.partner(f, x, "iu"), "bool": lambda w, f, x: w.partner(f, x, "b"),
    "same": FormFiller.alike, "alike": lambda w, f, x: w.alike(f, x, f["axis"]), "factor": FormFiller.factor,
    "index": FormFiller.index, "signed_index": lambda w, f, x: w.index(f, x, SIGNED), "along": FormFiller.along,
    "labels": lambda w, f, x: w.array(w.choose(SIGNED), [w.axis_of(x.shape[0])], 0, x.shape[1] - 1),
    "scalar": lambda w, f, x: w.parameter(Parameter("s", "float", -2, 2), Value(1.75, DTYPES["f32"], False)),
    "axis": lambda w, f, x: w.choose(range(len(x.shape))[::-1]), "end_axis": lambda w, f, x: f["axis"] - len(x.shape),
    "order": lambda w, f, x: w.choose(list(permutations(range(len(x.shape))))[::-1]), "colons": lambda w, f, x: ":, " * f["axis"],
    "slices": lambda w, f, x: ", ".join(f["slice"] for _ in x.shape), "pads": lambda w, f, x: ", ".join(f["pad"] for _ in x.shape),
    "place": FormFiller.place, "next_place": lambda w, f, x: w.place(f, x, 1),
    "half": lambda w, f, x: str(x.shape[-1] // 2), "last": lambda w, f, x: str(x.shape[-1] - 1), "size": FormFiller.some_size,
    "dimension": lambda w, f, x: w.required([n for n, s in w.dimensions().items() if s <= x.dtype.limits[1]]),
}  # fmt: skip


def _broadcast(a: Sequence[int], b: Sequence[int]) -> float:
    """Returns the number of elements after broadcasting two shapes, or inf if the shapes cannot be broadcast."""
    try:
        return math.prod(np.broadcast_shapes(tuple(a), tuple(b)))
    except ValueError:
        return math.inf


def _product(a: Sequence[int], b: Sequence[int]) -> float:
    """Returns the number of elements of a matrix product, or inf if the shapes do not fit."""
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        return math.inf  # the shapes do not fit
    return _broadcast(a[:-2], b[:-2]) * math.prod(a[-2:-1]) * (b[-1] if len(b) > 1 else 1)
