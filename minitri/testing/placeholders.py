"""What the placeholders of statement_forms.toml become in small programs.

{y} → w, a value that broadcasts with x        {MK} → a, a new matrix        {axis} → 1
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from minitri.base.types import DTYPES, promote
from minitri.testing.small_parameters import DTYPE_CHOICES, MAX_ELEMENTS, Axis, Parameter, ParameterWriter, Value
from minitri.testing.statement_writer import DoesNotFit, Filled

SIDES = (16, 32, 48, 64, 5, 17, 33, 40)  # of matrices in parts of models; tensor cores need multiples of 16


class FormFiller(ParameterWriter):
    """Fills the placeholders of a form. `sides`: sizes of matrices in parts of models."""

    drawn_again = frozenset({"place", "next_place", "size", "dimension", "alike", "same"})

    def __init__(
        self, table: Mapping[str, Any], choose: Callable[[Sequence[Any]], Any], sides: Sequence[int] = SIDES
    ) -> None:
        super().__init__(table, choose)
        self.sides = sides

    def placeholder(self, name: str, filled: Filled) -> Any:
        x = self.values[filled["x"]]
        *prefix, letters = name.rpartition("_")
        if letters.isupper():
            return self._of_sides(prefix[0], letters, filled)
        if len(name) == 1 and name != "y" or name not in PLACEHOLDERS:
            raise KeyError(name)
        return PLACEHOLDERS[name](self, filled, x)

    def required(self, options: Sequence[Any]) -> Any:
        """One of the options; DoesNotFit if there is none."""
        if not options:
            raise DoesNotFit
        return self.choose(options)

    # ---- other operands ----------------------------------------------------------------------

    def partner(self, filled: Filled, x: Value, kinds: str = "fiub") -> str:
        """Another value that broadcasts with x, or a new parameter. A kind of statements limits their common dtype."""
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
        return self.array(
            self.choose([*dtypes[:1] * 2, *dtypes]), [Axis("1", 1) if self.chance(4) else a for a in axes]
        )

    def axis_of(self, size: int) -> Axis:
        """An axis of the given size: a dimension that has it, or a number."""
        return self.choose([*(Axis(n, s) for n, s in self.sizes.items() if s == size), Axis(str(size), size)])

    def alike(self, filled: Filled, x: Value, but: int | None = None) -> str:
        """A value of the shape of x, which may differ along the axis `but`."""
        shape = _without(x.shape, but)
        return self.found(lambda v: len(v.shape) == len(x.shape) and _without(v.shape, but) == shape) or filled["x"]

    def factor(self, filled: Filled, x: Value) -> str:
        """A right factor of x, or a new parameter."""
        name = self.found(lambda v: _product(x.shape, v.shape) <= MAX_ELEMENTS)
        if name is not None and self.choose((True, False)):
            return name
        rows, columns = self.axis_of(x.shape[-1]), self.new_axis(130)
        axes = [rows, columns] if self.choose((True, True, False)) else [rows]
        if len(x.shape) > 2 and len(axes) == 2 and self.chance(3):
            axes = [*map(self.axis_of, x.shape[:-2]), *axes]
        if _product(x.shape, [a.size for a in axes]) > MAX_ELEMENTS:
            raise DoesNotFit
        return self.array(self.choose([x.dtype.name] * 4 + [self.choose((*DTYPE_CHOICES[:4], "i32"))]), axes)

    def transposed(self, filled: Filled, x: Value) -> str:
        found = self.found(lambda v: len(v.shape) > 1 and _product(x.shape, _turned(v.shape)) <= MAX_ELEMENTS)
        return self.required([found] if found else [])

    def indices(self, axes: Sequence[Axis], extent: int, dtypes: Sequence[str] = ("i64", "i32", "u8")) -> str:
        """A new parameter of indices; some are negative, and now and then some are out of range."""
        dtype = self.choose(dtypes)
        wild = 2 if self.chance(5) else 0
        return self.array(dtype, axes, 0 if dtype == "u8" else -extent - wild, max(extent - 1, 0) + wild)

    def index(self, filled: Filled, x: Value, dtypes: Sequence[str] = ("i64", "i32", "u8")) -> str:
        extent = x.shape[filled["axis"]]
        room = MAX_ELEMENTS * max(1, extent) // max(1, math.prod(x.shape))
        return self.indices(self.new_axes(self.choose((1, 2, 0)), room), extent, dtypes)

    def along(self, filled: Filled, x: Value) -> str:
        k = filled["axis"]
        axes = [self.new_axis(33) if j == k else self.axis_of(n) for j, n in enumerate(x.shape)]
        return self.indices(axes, x.shape[k])

    def labels(self, filled: Filled, x: Value) -> str:
        """A class for each row of a matrix."""
        if len(x.shape) != 2 or 0 in x.shape:
            raise DoesNotFit
        return self.array(self.choose(("i64", "i32")), [self.axis_of(x.shape[0])], 0, x.shape[1] - 1)

    def literal(self, filled: Filled, x: Value) -> str:
        size = self.choose((3, 1, 2, 7))
        return self.array(x.dtype.name, [Axis(str(size), size), *self.new_axes(self.choose((1, 0, 2)), 2000)])

    def scalar(self, filled: Filled, x: Value) -> str:
        return self.parameter(Parameter("s", "float", -2, 2), Value(1.75, DTYPES["f32"], False))

    def _of_sides(self, prefix: str, letters: str, filled: Filled) -> str:
        """A new array with the sides `letters`, or the size of one. Sides and the dtype are the same in a statement."""
        axes = []
        for letter in letters:
            side = filled.setdefault(f"side {letter}", None) or self.choose(self.sides)
            filled[f"side {letter}"] = side
            axes.append(Axis(str(side), side))
        if prefix == "size":
            return axes[0].text
        dtype = prefix or filled.get("real") or self.choose(("f32", "f16", "bf16"))
        if not prefix:
            filled["real"] = dtype
        return self.array(dtype, axes, *((-1, 1) if DTYPES[dtype].is_float else (-20, 20)))

    # ---- axes and sizes ----------------------------------------------------------------------

    def over(self, filled: Filled, x: Value) -> str:
        rank = len(x.shape)
        ways = [f", axis={k - rank}" for k in reversed(range(rank))] + ["", ", axis=None"]
        return self.choose(ways + [f", axis=({k}, -1)" for k in range(rank - 1)])

    def merged(self, filled: Filled, x: Value) -> str:
        sizes = self.shape(filled, x)
        k = self.required(range(len(sizes) - 1))
        return ", ".join([*sizes[:k], f"({sizes[k]}) * ({sizes[k + 1]})", *sizes[k + 2 :], ""]).strip()

    def split(self, filled: Filled, x: Value) -> str:
        sizes = self.shape(filled, x)
        k, q = self.required([(k, q) for k, n in enumerate(x.shape) for q in (2, 3, 11) if n and n % q == 0])
        return ", ".join([*sizes[:k], f"({sizes[k]}) // {q}", str(q), *sizes[k + 1 :]])

    def shape(self, filled: Filled, x: Value) -> list[str]:
        return [self.size(filled["x"], k) for k in range(len(x.shape))]

    def some_size(self, filled: Filled, x: Value) -> str:
        """A size that the body can write: a dimension or an integer."""
        named = [n for n, s in self.sizes.items() if s <= 33]
        return self.choose(["2", *named, "3", "1", "17", *named])

    def place(self, filled: Filled, x: Value, step: int = 0) -> str:
        """The index along an axis of x, shaped to broadcast with x: the last place's axis plus `step`, or any axis."""
        rank = len(x.shape)
        k = (filled["last place"] - step) % rank if step else self.choose(range(rank)[::-1])
        filled["last place"] = k
        later = rank - 1 - k
        return f"arange({self.size(filled['x'], k)})" + (f"[:{', None' * later}]" if later else "")


PLACEHOLDERS: dict[str, Callable[[FormFiller, Filled, Value], Any]] = {
    "y": FormFiller.partner, "int": lambda w, f, x: w.partner(f, x, "iu"), "bool": lambda w, f, x: w.partner(f, x, "b"),
    "same": FormFiller.alike, "alike": lambda w, f, x: w.alike(f, x, f["axis"]), "factor": FormFiller.factor,
    "transposed": FormFiller.transposed, "index": FormFiller.index, "along": FormFiller.along, "labels": FormFiller.labels,
    "signed_index": lambda w, f, x: w.index(f, x, ("i64", "i32")), "literal": FormFiller.literal, "scalar": FormFiller.scalar,
    "axis": lambda w, f, x: w.choose(range(len(x.shape))[::-1]), "end_axis": lambda w, f, x: f["axis"] - len(x.shape),
    "over": FormFiller.over, "order": lambda w, f, x: w.choose(list(permutations(range(len(x.shape))))[::-1]),
    "one_axis": lambda w, f, x: w.required([k for k, n in enumerate(x.shape) if n == 1]), "colons": lambda w, f, x: ":, " * f["axis"],
    "slices": lambda w, f, x: ", ".join(f["slice"] for _ in x.shape), "pads": lambda w, f, x: ", ".join(f["pad"] for _ in x.shape),
    "shape": lambda w, f, x: ", ".join(w.shape(f, x)), "merged": FormFiller.merged, "split": FormFiller.split,
    "stretched": lambda w, f, x: ", ".join(f["size"] if n == 1 else s for n, s in zip(x.shape, w.shape(f, x))),
    "place": FormFiller.place, "next_place": lambda w, f, x: w.place(f, x, 1),
    "half": lambda w, f, x: str(x.shape[-1] // 2), "last": lambda w, f, x: str(x.shape[-1] - 1),
    "to": lambda w, f, x: w.choose([d for d in DTYPE_CHOICES if d != x.dtype.name and (x.exact or DTYPES[d].is_float)]),
    "dtype": lambda w, f, x: x.dtype.name, "size": FormFiller.some_size, "nonempty": lambda w, f, x: w.required([f["x"]][: x.data.size]),
    "dimension": lambda w, f, x: w.required([n for n, s in w.sizes.items() if s <= x.dtype.limits[1]]),
}  # fmt: skip


def _broadcast(a: Sequence[int], b: Sequence[int]) -> float:
    """The number of elements of two shapes broadcast together; inf if they do not fit."""
    try:
        return math.prod(np.broadcast_shapes(tuple(a), tuple(b)))
    except ValueError:
        return math.inf


def _product(a: Sequence[int], b: Sequence[int]) -> float:
    """The number of elements of the product of two arrays of these shapes; inf if they do not fit."""
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        return math.inf
    return _broadcast(a[:-2], b[:-2]) * math.prod(a[-2:-1]) * (b[-1] if len(b) > 1 else 1)


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _without(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return tuple(n for k, n in enumerate(shape) if k != axis)
