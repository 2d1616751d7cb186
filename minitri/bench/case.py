"""A benchmark case: a program, its arguments, and the same computation in torch.

The computation in torch is a function: eager torch runs one kernel for each operation of the function, and
torch.compile compiles the function. Evaluated in f64, the torch function is the reference for the errors of all
implementations. If a library has one function for the whole computation, this library function is timed too. The
programs in the language are functions of the module programs.mt.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch as typed_torch

torch: Any = typed_torch


@dataclass(frozen=True, slots=True)
class Input:
    """A random input array of a case.

    below      0 for random floats; any other number for random integers from 0 to `below` - 1
    signed     whether the random integers start from -below
    positive   whether the floats are uniformly distributed from 0 to 1; otherwise they are normally distributed
    layout     "transposed": the last two axes in memory are exchanged. "every other": the last axis has the stride 2.
               "wide rows": the array is a part of an array with longer rows
    scale      the standard deviation of the random floats
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
        """The smallest number that a random integer of the input can be."""
        return -self.below if self.signed else 0


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the benchmark.

    eager     the computation in torch, as several operations; `library` is a single function of torch with the same
              result
    picks     whether the program reads only some elements of its first input, as many as the output has
    flops     the number of floating-point operations of matrix products; 0 for programs that mostly move memory
    kind      the group of cases that this case belongs to; tables show the mean of each group
    tf32      whether torch may round f32 factors to TF32 too
    peers     other implementations by name, which need a GPU
    tuned     whether minitri and torch are also timed with measured block sizes
    beside    other programs of the language, by name; these programs are timed on the same inputs, but compute
              something else
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
    """Returns the text of a function of programs.mt, with the dtype f32 replaced by `dtype`.

    Raises KeyError if programs.mt has no function of this name.
    """
    return f"\n{_functions()[name].replace('f32', dtype)}\n"


@cache
def _functions() -> dict[str, str]:
    """Returns the text of each function of programs.mt, by name.

    In programs.mt, a function ends at the first blank line after its `def`.
    """
    text = Path(__file__).with_name("programs.mt").read_text(encoding="utf-8").strip()
    return {found[2]: found[1] for found in re.finditer(r"^(def (\w+).*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)}
