"""What a benchmark case is.

A case is a program of the language, its arguments, and the same computation in torch. Eager torch runs one kernel
for each operation. torch.compile compiles the same torch function. Evaluated in f64, the torch function is the
reference. If a library has one function for the whole computation, that function is timed too. The programs are
functions of programs.mt.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

try:
    import torch as _torch
except ImportError:  # the table without a GPU needs no torch
    _torch = None
torch: Any = _torch


@dataclass(frozen=True, slots=True)
class Input:
    """A random input array of a case.

    below      0: random floats; else random integers from 0 to below - 1
    signed     the integers start from -below
    positive   the floats are uniform from 0 to 1, else normally distributed
    layout     "transposed": the last two axes in memory are exchanged; "every other": the last axis has the stride 2;
               "wide rows": the array is a part of one with longer rows
    scale      standard deviation of the floats
    """

    dtype: str
    shape: tuple[int, ...]
    below: int = 0
    positive: bool = False
    signed: bool = False
    layout: str = ""
    scale: float = 1.0

    @property
    def least(self) -> int:
        """The smallest random integer."""
        return -self.below if self.signed else 0


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the benchmark.

    eager     the computation in torch; `library` is a single function of torch that does the same
    picks     the program reads only as much of its first input as the output holds
    flops     floating-point operations of matrix products; 0 for programs that mostly move memory
    kind      the group of cases whose mean this case counts in
    tf32      torch may round f32 factors to TF32 too
    peers     other implementations by name, which need a GPU
    tuned     minitri and torch are also timed with measured block sizes
    beside    other programs of the language, by name; they are timed on the same inputs, but compute something else
    """

    name: str
    program: str
    inputs: tuple[Input, ...]
    eager: Callable[..., Any]
    library: Callable[..., Any] | None = None
    picks: bool = False
    flops: int = 0
    kind: str = "memory"
    tf32: bool = False
    peers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    tuned: bool = False
    beside: Mapping[str, str] = field(default_factory=dict)


def program(name: str, dtype: str = "f32") -> str:
    """The text of a function of programs.mt, with the dtype f32 replaced by `dtype`. KeyError if there is none."""
    return f"\n{_functions()[name].replace('f32', dtype)}\n"


@cache
def _functions() -> dict[str, str]:
    """The text of each function of programs.mt, by name. A function ends at the first blank line."""
    text = Path(__file__).with_name("programs.mt").read_text(encoding="utf-8").strip()
    return {found[2]: found[1] for found in re.finditer(r"^(def (\w+).*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)}
