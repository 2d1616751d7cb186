"""Everything besides the program that decides what is compiled.

    Context(module, "main", Instance(), sizes={"M": 4096}, target=Target("cuda", "90"))

Every pass gets the same context. Left out: the value that a pass rewrites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minitri.base.dims import Dim
from minitri.base.limits import Limits, current
from minitri.graph.parameters import Instance
from minitri.hardware.targets import Target
from minitri.language import ast
from minitri.tiles.schedule import Options


@dataclass(frozen=True, eq=False)
class Start:
    """The stage at which a program begins, where that is not its syntax tree: a stage read from a text."""

    stage: str
    value: Any


@dataclass(frozen=True)
class Context:
    """Everything that passes know besides the program.

    sizes    known dimensions by name (elements)
    layouts  strides in elements of inputs that are not contiguous
    wide     offsets may need 64 bits (minitri/optimize/index_width/kernel_offsets.py asks each kernel)
    without  optional passes that are switched off
    options  what the caller decides about schedules
    start    the stage that is there from the beginning; the module then only declares the parameters
    """

    module: ast.Module
    entry: str
    instance: Instance
    sizes: Mapping[str, int] = field(default_factory=dict)
    layouts: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    target: Target = Target("cuda", "90")
    wide: bool = False
    without: frozenset[str] = frozenset()
    options: Options = Options()
    limits: Limits = field(default_factory=current)
    start: Start | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What the compilations of one program differ in, apart from options that are being measured."""
        return (
            self.instance.key, tuple(self.sizes.items()), tuple(self.layouts.items()),
            str(self.target), self.wide, self.options.descriptors,
        )  # fmt: skip
