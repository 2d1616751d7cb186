"""Statements whose result depends on positions: masks, and reductions over them.

    where((arange(N) > arange(M)[:, None] + 5) & (arange(N) <= 60), x, 0)

Triangles, bands, corners, their complements, and one choice inside another, over one axis or two. The element that is
chosen elsewhere is mostly the one that the reduction ignores: then a compiler may leave out what the mask excludes.
"""

from __future__ import annotations

import math

from minitri.testing.values import Value
from minitri.testing.writer import Writer

NEUTRAL = {
    "sum": ("0", "0", "1"), "mean": ("0", "0", "1"), "prod": ("1", "0"), "max": ("-inf", "-inf", "0"), "min": ("inf", "0"),
    "argmax": ("-inf", "0"), "argmin": ("inf", "0"), "softmax": ("-inf", "-inf", "0"), "logsumexp": ("-inf", "0"),
    "var": ("0", "1"), "cumulative_sum": ("0", "1"),
}  # fmt: skip
COMPARISONS = ("<=", ">=", "<", ">", "==", "!=")
SHAPED = ("softmax", "cumulative_sum")  # their result has the shape of their operand


class Positions(Writer):
    def _masked(self) -> Value:
        """A choice by position."""
        x = self.pick(lambda v: v.rank > 0 and v.kind in "fi")
        other = self.choose(("0", "1", "-inf") if x.kind == "f" else ("0", "1"))
        return self.add(self._chosen(x, other), x.dtype, x.axes, x.exact, max(1, x.reach))

    def _masked_reduction(self) -> Value:
        """A reduction of a choice by position, along one of its axes."""
        x = self.find(lambda v: v.rank > 1 and v.kind == "f" and v.reach <= 100)
        x = x or self.array("f32", (self.axis(130), self.axis(130)))
        k = self.choose(x.axes_from_the_last)
        name = self.choose(self._reductions(x, x.axes[k].size))
        text = self._chosen(x, self.choose(NEUTRAL[name]))
        keep = name not in SHAPED and not name.startswith("arg") and self.choose((False, True))
        axes = x.axes if name in SHAPED else x.without((k,), keep)
        dtype = "i64" if name.startswith("arg") else x.dtype
        reach = x.reach * max(1, x.axes[k].size) + 6
        return self.add(
            f"{name}({text}, axis={k - x.rank}{', keepdims=True' * keep})", dtype, axes, name.startswith("arg"), reach
        )

    def _reductions(self, x: Value, count: int) -> list[str]:
        names = ["sum", "mean", "cumulative_sum", "var"]
        names += ["max", "min", "softmax", "logsumexp"] if count else []
        names += ["argmax", "argmin"] if count and x.steady else []
        return names + (["prod"] if count <= 17 and x.reach <= 4 else [])

    # ---- conditions --------------------------------------------------------------------------

    def _chosen(self, x: Value, other: str) -> str:
        """`where(condition, x, other)`; sometimes inside out, or one in another."""
        condition = self._condition(x, self.choose((1, 1, 2, 2, 3)))
        match self.choose(("plain", "plain", "plain", "inverted", "nested")):
            case "inverted":
                return f"where({condition}, {other}, {x.name})"
            case "nested":
                return f"where({condition}, where({self._condition(x, 1)}, {x.name}, {other}), {other})"
            case _:
                return f"where({condition}, {x.name}, {other})"

    def _condition(self, x: Value, comparisons: int) -> str:
        """A number of comparisons of positions in x, joined by `&` and `|`."""
        if comparisons > 1:
            first = self.choose(range(1, comparisons))
            a, b = self._condition(x, first), self._condition(x, comparisons - first)
            text = f"({a} {self.choose(('&', '&', '|'))} {b})"
        else:
            text = self._comparison(x)
        return f"~{text}" if self.chance(6) else text

    def _comparison(self, x: Value) -> str:
        places = [self._position(x, k) for k in reversed(range(x.rank))]
        first, size = self.choose(places), max(1, math.prod(a.size for a in x.axes[-1:]))
        offset = self.choose((0, 1, 5, size // 2, size - 1, -1, -7))
        compare = self.choose(COMPARISONS)
        second = self.choose([p for p in places if p != first] or places)
        if first == second or self.choose((False, False, True)):
            return f"({first} {compare} {offset})"
        if self.chance(4):
            return f"(abs({first} - {second}) {compare} {abs(offset)})"
        return f"({first} {compare} {second}{f' {offset:+d}'.replace('+', '+ ').replace('-', '- ') if offset else ''})"

    def _position(self, x: Value, k: int) -> str:
        """The index along an axis of x, broadcast against the others."""
        behind = x.rank - 1 - k
        return f"arange({self.size(x, k)})" + (f"[:{', None' * behind}]" if behind else "")
