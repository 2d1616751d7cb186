"""The interface of a program, for modules that run, measure and check programs.

The class itself is in minitri/program.py, a higher layer. Modules of lower layers must not import this class, so they
use this protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from minitri.base.diagnostics import CompileError
from minitri.base.lru_cache import Recent
from minitri.graph.argument_binding import Instance
from minitri.graph.ir import Condition, Graph
from minitri.hardware.targets import Target
from minitri.language import ast
from minitri.pipeline import Compilation, Context, Start
from minitri.runtime.binding import Call
from minitri.runtime.launch import Executable
from minitri.runtime.replay import Bound
from minitri.tiles.schedule import Options

EFFORTS = ("none", "quick", "full")  # how many schedules a program measures


class ProgramProtocol(Protocol):
    """One function of the language, with its settings. minitri/program.py explains the attributes."""

    module: ast.Module
    function: ast.Function
    name: str
    without: frozenset[str]
    options: Options
    effort: str
    start: Start | None
    choices: Recent[str, Options]

    @property
    def against(self) -> ProgramProtocol | None: ...
    @property
    def parameters(self) -> tuple[tuple[str, str], ...]: ...

    # Stages.
    def graph(self, instance: Instance) -> Graph: ...
    def conditions(self, instance: Instance) -> tuple[Condition, ...]: ...
    def context(self, call: Call, target: Target, known: bool = True, wide: bool = False) -> Context: ...
    def compilation(self, context: Context) -> Compilation: ...

    # Calls.
    def __call__(self, /, *args: Any, **keywords: Any) -> Any: ...
    def bind(self, /, *args: Any, **keywords: Any) -> Bound: ...
    def prepare(self, /, *args: Any, **keywords: Any) -> tuple[Executable, Call]: ...
    def fitted(self, call: Call) -> Call: ...
    def evaluate(self, stage: str, call: Call) -> tuple[Any, ...]: ...
    def configured(
        self, *, without: Sequence[str] | None = None, options: Options | None = None, effort: str | None = None
    ) -> ProgramProtocol: ...


def check_effort(effort: str) -> str:
    """The effort itself. CompileError MT0404 if no effort has this name."""
    if effort not in EFFORTS:
        help = f"write one of {', '.join(EFFORTS)}"
        raise CompileError("MT0404", f"effort cannot be {str(effort)[:40]!r}", help=help)
    return effort
