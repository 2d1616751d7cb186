"""Movement of computed values: what a scan, reduction or product makes is sliced, padded, shifted, reshaped and joined.

Hypothesis draws a value and up to five movements. Fusion computes the value at other indices then, often under
conditions. Every stage must have numpy's result.
"""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

import numpy as np
from hypothesis import given, strategies as st

import minitri as mt

SHAPE = (4, 6)
MADE = (
    "cumulative_sum(x, axis=0)", "cumulative_sum(x, axis=1)", "cumulative_max(x, axis=1)", "cumulative_prod(y, axis=1)", "x * y", "softmax(x, axis=1)",
    "x - max(x, axis=0, keepdims=True)", "broadcast_to(sum(x, axis=1, keepdims=True), (4, 6))", "x @ (y.mT @ y)", "where(x > y, x, cumulative_min(y, axis=0))", "x[:, [3, 0, 2, 2, 5, 1]]",
)  # fmt: skip


class Value(NamedTuple):
    text: str
    shape: tuple[int, ...]


@st.composite
def moved(draw: st.DrawFn, value: Value) -> Value:
    """One movement of a value."""
    shape, rank = value.shape, len(value.shape)
    axis = draw(st.integers(0, rank - 1))
    n = shape[axis]
    kind = draw(
        st.sampled_from(("slice", "slice", "pad", "pad", "concat", "roll", "flip", "reshape", "transpose", "compute"))
    )
    match kind:
        case "slice" if n > 1:
            start, step = draw(st.integers(0, n - 1)), draw(st.sampled_from((1, 1, 1, 2, 3)))
            stop = draw(st.integers(start + 1, n))
            index = ", ".join([":"] * axis + [f"{start}:{stop}" + f":{step}" * (step > 1)])
            return Value(f"({value.text})[{index}]", (*shape[:axis], -(-(stop - start) // step), *shape[axis + 1 :]))
        case "pad":
            widths = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) if k == axis else (0, 0) for k in range(rank)]
            text = ", ".join(map(str, widths)) + "," * (rank == 1)
            return Value(f"pad({value.text}, ({text}))", (*shape[:axis], n + sum(widths[axis]), *shape[axis + 1 :]))
        case "concat" if rank == 2 and shape[1 - axis] <= SHAPE[1 - axis]:
            other = f"y[:{shape[0]}]" if axis == 1 else f"y[:, :{shape[1]}]"
            parts = draw(st.permutations((value.text, other)))
            return Value(
                f"concat(({', '.join(parts)}), axis={axis})", (*shape[:axis], n + SHAPE[axis], *shape[axis + 1 :])
            )
        case "roll":
            return Value(f"roll({value.text}, {draw(st.integers(-3, 3))}, axis={axis})", shape)
        case "flip":
            return Value(f"flip({value.text}, axis={axis})", shape)
        case "reshape":
            whole = prod(shape)
            rows = draw(st.sampled_from([k for k in range(1, whole + 1) if whole % k == 0]))
            new = draw(st.sampled_from([(rows, whole // rows), (whole,)]))
            return Value(f"reshape({value.text}, ({', '.join(map(str, new))},))", new)
        case "transpose" if rank == 2:
            return Value(f"({value.text}).mT", shape[::-1])
        case "compute":
            return Value(
                draw(st.sampled_from((f"exp(({value.text}) * 0.1)", f"cumulative_sum({value.text}, axis={axis})"))),
                shape,
            )
    return value


@given(st.data())
def test_every_stage(data: st.DataObject) -> None:
    value = Value(data.draw(st.sampled_from(MADE)), SHAPE)
    for _ in range(data.draw(st.integers(1, 5))):
        value = data.draw(moved(value))
    x, y = np.random.default_rng(data.draw(st.integers(0, 9))).integers(1, 4, (2, *SHAPE)).astype(np.float32)
    used = {n: array for n, array in (("x", x), ("y", y)) if re.search(rf"\b{n}\b", value.text)}
    report = mt.compile(value.text, **dict.fromkeys(used, "f32[4, 6]")).check(*used.values())
    assert report.ok, f"{value.text}\n{report}"
