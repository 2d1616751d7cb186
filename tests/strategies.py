"""Hypothesis strategies for the operator tests: shapes, memory layouts and values, and arrays made of them.

In: hypothesis' choices. Out: `Case`s, and numpy arrays of a case. The one idea: hypothesis draws the
structure and a seed. From the seed, numpy's generator makes the elements. So hypothesis can shrink the
structure, and an example costs no more than its program.

    Case(shape=(3, 5), operands=(Operand(ones=(), lead=1, layout="strided"), …), seed=7, …)

On a GPU each new structure means compiling a new kernel (0.2 s). So GPU cases take one of a few fixed
structures, with new values every time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minitri.base.types import DTYPES, DType

Shape = tuple[int, ...]

LAYOUTS = ("plain", "plain", "transposed", "strided", "reversed", "reversed strided", "repeated", "window")
KINDS = ("wild", "special", "ties", "plain")
SCHEDULES = ("own", "small", "bare", "cuda", "cuda general", "cuda wide")  # see tests/stages.py
SIZES = (0, 1, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33)
LIMIT = 300  # the most elements of an array


@dataclass(frozen=True, slots=True)
class Operand:
    """How the shape of an operand differs from the result's, and its layout in memory.

    ones    axes (counted from the end) that have size 1 in this operand
    lead    how many leading axes are missing in this operand
    """

    ones: tuple[int, ...] = ()
    lead: int = 0
    layout: str = "plain"

    def shape(self, result: Shape) -> Shape:
        own = result[min(self.lead, len(result)) :]
        return tuple(1 if len(own) - k in self.ones else n for k, n in enumerate(own))


@dataclass(frozen=True, slots=True)
class Case:
    """One example. `symbolic`: the types have names instead of numbers as sizes. The test interprets `choice`."""

    shape: Shape
    operands: tuple[Operand, Operand, Operand] = (Operand(), Operand(), Operand())
    kind: str = "plain"
    symbolic: bool = True
    schedule: str = "own"
    choice: int = 0
    seed: int = 0

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.choice, len(self.shape)])


# ---- structure -------------------------------------------------------------------------


def _limited(shape: Sequence[int]) -> Shape:
    """Reduces sizes, the first ones first, until the number of elements is small enough. A size of 0 counts as 1,
    because `pad` makes it larger.
    """
    out = list(shape)
    for k in range(len(out)):
        while math.prod(n or 1 for n in out) > LIMIT and out[k] > 2:
            out[k] = out[k] // 2
    return tuple(out)


def shapes(least: int = 0, most: int = 4) -> st.SearchStrategy[Shape]:
    return st.lists(st.sampled_from(SIZES), min_size=least, max_size=most).map(_limited)


_operand = st.builds(
    Operand,
    ones=st.sampled_from([(), (), (), (1,), (2,), (1, 3)]),
    lead=st.sampled_from([0, 0, 0, 1, 2]),
    layout=st.sampled_from(LAYOUTS),
)
_same_shape = st.builds(Operand, layout=st.sampled_from(LAYOUTS))
_CPU = {
    "kind": st.sampled_from(KINDS),
    "symbolic": st.booleans(),
    "schedule": st.sampled_from(SCHEDULES),
    "choice": st.integers(0, 999),
    "seed": st.integers(0, 2**32 - 1),
}

FIXED: tuple[Case, ...] = (
    Case((3, 33)),
    Case((17, 5), (Operand(layout="transposed"), Operand((1,), 0, "strided"), Operand((), 1))),
    Case((2, 3, 7), (Operand(layout="strided"), Operand((1,), 0, "repeated"), Operand((2,), 0)), symbolic=False),
    Case((1,), (Operand(), Operand(layout="window"), Operand())),
    Case((0, 5)),
    Case(()),
)


def cases(on: str, least: int = 0, most: int = 4, broadcast: bool = True, choices: int = 4) -> st.SearchStrategy[Case]:
    """`on` is "cpu" or "gpu". On a GPU `choice` is one of a few, because it selects a program, too."""
    if on == "gpu":
        fixed = [c for c in FIXED if least <= len(c.shape) <= most]
        return st.builds(_revalued, st.sampled_from(fixed), _CPU["kind"], st.integers(0, choices - 1), _CPU["seed"])
    operand = _operand if broadcast else _same_shape
    return st.builds(Case, shape=shapes(least, most), operands=st.tuples(operand, operand, operand), **_CPU)


def _revalued(case: Case, kind: str, choice: int, seed: int) -> Case:
    return Case(case.shape, case.operands, kind, case.symbolic, case.schedule, choice, seed)


# ---- values ----------------------------------------------------------------------------


@functools.cache
def specials(d: DType) -> Any:
    """Values that are often computed wrong: limits, signed zeros, NaN, infinities, halves, denormals."""
    if d.kind == "b":
        return np.array([False, True])
    if d.is_integer:
        low, high = d.limits
        near = (0, 1, 2, 3, 7, d.bits - 1, d.bits, d.bits + 1, high - 1, high, -1, -2, -7, low + 1, low)
        return np.array([v for v in near if v >= low], d.numpy)
    import ml_dtypes

    info = ml_dtypes.finfo(d.numpy)
    small = float(info.smallest_subnormal), float(info.tiny), float(info.eps)
    positive = [0.0, small[0] * 3, *small[1:], 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 86.5, 100.0, 127.0, 255.5]
    positive += [2.0**15, 2.0**31, 2.0**63, float(info.max), np.inf]
    with np.errstate(all="ignore"):
        return np.array([np.nan, *positive, *[-v for v in positive]], np.float64).astype(d.numpy)


def values(
    rng: np.random.Generator, d: DType, shape: Shape, kind: str, domain: tuple[float, float] = (-9.0, 9.0)
) -> Any:
    """Elements of a dtype.

    plain    in the domain         ties     few different small numbers
    special  plain, some special   wild     any bits, special ones and plain ones
    sums     plain, a few of them NaN, infinite or zero: partial sums do not overflow
    """
    plain = _plain(rng, d, shape, domain)
    ties = rng.integers(-2 if d.kind in "if" else 0, 3, shape)
    tied = (ties / 2 if d.is_float else ties).astype(d.numpy)
    match kind:
        case "plain":
            return plain
        case "ties":
            return tied
        case "special":
            return np.where(rng.random(shape) < 0.25, rng.choice(specials(d), shape), plain)
        case "sums":
            few = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]).astype(d.numpy)
            return np.where(rng.random(shape) < 0.04, rng.choice(few, shape), plain)
    picked = rng.random(shape)
    out = np.where(picked < 0.4, rng.choice(specials(d), shape), plain)
    out = np.where(picked > 0.6, _any_bits(rng, d, shape), out)
    return np.where(picked > 0.9, tied, out)


def _plain(rng: np.random.Generator, d: DType, shape: Shape, domain: tuple[float, float]) -> Any:
    if d.kind == "b":
        return rng.random(shape) < 0.5
    if d.is_float:
        return np.asarray(rng.uniform(*domain, shape)).astype(d.numpy)
    return np.asarray(rng.integers(max(d.limits[0], -9), 10, shape)).astype(d.numpy)


def _any_bits(rng: np.random.Generator, d: DType, shape: Shape) -> Any:
    if d.kind == "b":
        return rng.random(shape) < 0.5
    raw = np.asarray(rng.integers(0, 2**d.bits, shape, dtype=f"u{d.bytes}"))
    out = raw.view(d.numpy)
    return np.where(np.isnan(out.astype(np.float64)), specials(d)[0], out) if d.is_float else out  # no signalling NaN


def scalars(d: DType) -> list[int | float]:
    """Python numbers that an expression may combine with an array of this dtype."""
    whole = [0, 1, 2, 3, -1, -2, -7, 100]
    low, high = (-(2**31), 2**31) if d.is_float or d.kind == "b" else d.limits
    return [n for n in (*whole, low, high) if low <= n <= high] + [0.0, -0.0, 0.5, 2.0, -1.5, 1e-3, 3.0]


# ---- layouts ---------------------------------------------------------------------------


def laid_out(data: Any, layout: str) -> Any:
    """An array equal to `data` (for "repeated": to its first slice) in another layout. Gaps hold poison."""
    if layout == "repeated" and data.ndim and data.size:
        return np.broadcast_to(data[-1:].copy(), data.shape)
    if layout == "transposed":
        return np.array(data.T, order="C").T
    steps = {"strided": 2, "reversed": -1, "reversed strided": -2}.get(layout, 1)
    margin = 3 if layout == "window" else 0
    size = tuple(n * abs(steps) + 2 * margin for n in data.shape)
    poison = np.full(math.prod(size) * data.itemsize, 1 if data.dtype.kind == "b" else 0xFF, np.uint8)
    base = poison.view(data.dtype).reshape(size)
    inside = [slice(margin, n - margin, abs(steps)) for n in size]
    out = base[..., *inside]
    out = out[..., *[slice(None, None, -1)] * data.ndim] if steps < 0 else out
    out[...] = data
    return out


def memory(array: Any) -> Any:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


# ---- calls -----------------------------------------------------------------------------


def operand(case: Case, k: int, d: DType, domain: tuple[float, float] = (-9.0, 9.0), sums: bool = False) -> Any:
    """The k-th operand of a case. `sums`: the sum of its values does not depend on their order."""
    how = case.operands[k]
    return array(case, k, d, how.shape(case.shape), domain, sums)


def array(
    case: Case, k: int, d: DType, shape: Shape, domain: tuple[float, float] = (-9.0, 9.0), sums: bool = False
) -> Any:
    """An array of any shape with the values and the layout of a case's k-th operand."""
    kind = "sums" if sums and d.is_float and case.kind in ("wild", "special") else case.kind
    data = values(np.random.default_rng([case.seed, k]), d, shape, kind, domain)
    return laid_out(np.asarray(data), case.operands[k].layout)


def annotation(case: Case, d: DType, shape: Shape) -> str:
    """The type `f32[N1, 1, 5]`: a symbolic case has names as sizes, but a broadcast 1 is always literal."""
    sizes: list[str] = []
    for k, n in enumerate(shape):
        place = len(shape) - k
        whole = case.shape[-place] if place <= len(case.shape) else n
        sizes.append(f"N{place}" if case.symbolic and n == whole else str(n))
    return f"{d}[{', '.join(sizes)}]"


def dtypes(kinds: str) -> list[DType]:
    return [d for d in DTYPES.values() if d.kind in kinds]


def by_types(types: dict[str, str], sizes: dict[str, int]) -> list[Any]:
    """An array of each type of `{"x": "f16[M, 64]"}`: normally distributed floats, integers up to a hundred."""
    rng, made = np.random.default_rng(0), []
    for t in types.values():
        name, _, shape = t[:-1].partition("[")
        d, extents = DTYPES[name], [int(n) if n.isdigit() else sizes[n] for n in shape.split(", ")]
        drawn = rng.integers(max(d.limits[0], -99), 100, extents) if d.is_integer else rng.normal(size=extents)
        made.append(drawn.astype(d.numpy))
    return made
