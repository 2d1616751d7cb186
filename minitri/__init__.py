"""minitri: a mini-compiler from a small numpy-like array language to Triton.

    import minitri as mt
    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    f(x)

Nothing heavy is imported before it is needed: numpy, lark, networkx, triton and torch load
with the first program that uses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from minitri.backend.targets import StageUnavailable as StageUnavailable
    from minitri.diagnostics import CompileError as CompileError
    from minitri.diagnostics import ParseError as ParseError
    from minitri.loaded import load as load
    from minitri.lowered import Lowered as Lowered
    from minitri.program import Program as Program
    from minitri.program import compile as compile
    from minitri.program import evaluate as evaluate
    from minitri.program import jit as jit
    from minitri.quota import limits as limits
    from minitri.tile.schedule import Options as Options
    from minitri.tuning import tune as tune

_HOMES = {
    "minitri.loaded": ("load",),
    "minitri.lowered": ("Lowered",),
    "minitri.program": ("Program", "compile", "evaluate", "jit"),
    "minitri.diagnostics": ("CompileError", "ParseError"),
    "minitri.quota": ("limits",),
    "minitri.backend.targets": ("StageUnavailable",),
    "minitri.tile.schedule": ("Options",),
    "minitri.tuning": ("tune",),
    "minitri.types": ("bf16", "bool_", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*_HOME_OF, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'minitri' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
