"""The stages of a program for known sizes and a target, as texts.

In: a compilation, whose stages are made when they are asked for. Out: what `Program.lower` returns, the text of each
stage by its name.
"""

from __future__ import annotations

from minitri.passes.pass_manager import PassRecord
from minitri.pipeline import Compilation


class Lowered:
    """The stages of a program for given sizes and a target; `lowered["tile"]` is a stage's text."""

    def __init__(self, compilation: Compilation) -> None:
        self.compilation = compilation

    @property
    def stages(self) -> tuple[str, ...]:
        return self.compilation.stages

    @property
    def target(self) -> str:
        return str(self.compilation.context.target)

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.compilation.context.sizes)

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        return self.compilation.passes

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, in the order in which they run."""
        return tuple(p.name for p in self.compilation.value("tile.target"))

    def __getitem__(self, stage: str) -> str:
        return self.compilation[stage]

    def __repr__(self) -> str:
        return f"<stages {', '.join(self.stages)} for {self.target}>"
