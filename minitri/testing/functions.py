"""Statements that call a library function of one value.

The table functions.toml says which values fit a function, and what its result is.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from minitri.base.types import DTYPES, f32, promote
from minitri.testing.generator import Writer, require
from minitri.testing.values import Axis, Value, counted


@dataclass(frozen=True, slots=True)
class Function:
    """A row of functions.toml, which explains the fields."""

    text: str
    axes: str = ":"
    dtype: str = ""
    kinds: str = "fiub"
    limits: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    exact: bool = False
    rounds: bool = False
    reach: tuple[str | int, ...] = ("reach",)
    more: int = 0
    least: int = 0

    def takes(self, x: Value) -> bool:
        known = x.measures
        within = all(least <= known[name] <= most for name, (least, most) in self.limits.items())
        return within and x.kind in self.kinds and (x.steady or not self.exact)

    def result_axes(self, x: Value) -> Iterator[Axis]:
        for part in self.axes.split():
            if ":" in part:
                yield from x.axes[slice(*(int(k) if k else None for k in part.split(":")))]
            elif computed := re.fullmatch(r"(-?\d)\*(\d)-(\d)", part):
                place, factor, less = map(int, computed.groups())
                yield counted(max(0, x.axes[place].size * factor - less), x.axes[place])
            else:
                yield Axis(part, int(part)) if part.isdigit() else getattr(x, part)

    def result_reach(self, x: Value) -> float:
        factors = [x.measures[f] if isinstance(f, str) else f for f in self.reach]
        return max(self.least, math.prod(factors) + self.more)

    def result_dtype(self, x: Value) -> str:
        real = x.dtype if x.kind == "f" else "f32"
        known = {"": x.dtype, "float": real, "sum": x.summed, "f32 too": promote(DTYPES[x.dtype], f32).name}
        return known.get(self.dtype, self.dtype)


TABLE = tomllib.loads(Path(__file__).with_name("functions.toml").read_text(encoding="utf-8"))
FUNCTIONS = [Function(**row) for row in TABLE["functions"]]


class Functions(Writer):
    def _function(self) -> Value:
        x = self.pick(lambda v: v.rank > 0)
        function = self.choose([f for f in FUNCTIONS if f.takes(x)])
        dtype, reach = function.result_dtype(x), function.result_reach(x)
        require(self.fits(reach, dtype))
        exact = x.exact and not (function.rounds and DTYPES[dtype].is_float)
        text = function.text.format(x=x.name, dtype=x.dtype)
        return self.add(text, dtype, list(function.result_axes(x)), exact, reach)
