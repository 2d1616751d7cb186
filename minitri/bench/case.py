"""What a case is.

A case is a program of the language with its arguments, and the same `as written` in torch. Eager torch runs one kernel
for each operation. torch.compile gets the same text, and in f64 it is the reference. If a library has an op for the
case, the op runs too. The programs are functions of programs.mt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

try:
    import torch as _torch
except ImportError:  # the table against numpy does without
    _torch = None
torch: Any = _torch


@dataclass(frozen=True, slots=True)
class Input:
    """`below`: random integers 0 … below-1, or (`signed`) -below … below-1; else floats, normal or (`positive`) from 0
    to 1."""

    dtype: str
    shape: tuple[int, ...]
    below: int = 0
    positive: bool = False
    signed: bool = False

    @property
    def least(self) -> int:
        """Of random integers."""
        return -self.below if self.signed else 0


@dataclass(frozen=True, slots=True)
class Case:
    """`picks`: of its first input only as much as the output holds is read. `flops`: of a product. `kind`: the
    group whose mean it counts in. `tf32`: torch may round factors of f32, too. `peers`: what else there is, by
    name; it needs a GPU. `tuned`: versions of ours and torch's that measure their blocks run too. `beside`: other
    programs of ours on the same inputs, by name, that it is held against; their results differ."""

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
    """The text of a function of programs.mt, with `dtype` in the place of f32. KeyError if there is none."""
    return f"\n{_functions()[name].replace('f32', dtype)}\n"


@cache
def _functions() -> dict[str, str]:
    """By name. A function ends at the first blank line."""
    text = Path(__file__).with_name("programs.mt").read_text(encoding="utf-8").strip()
    return {found[2]: found[1] for found in re.finditer(r"^(def (\w+).*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)}
