"""minitri: a mini-compiler from a small numpy-like array language to Triton.

    import minitri as mt
    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    f(x)

Importing minitri is fast, because numpy, lark, networkx, triton and torch are imported only when the first program
needs them.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from minitri.api import compile as compile
    from minitri.api import evaluate as evaluate
    from minitri.api import jit as jit
    from minitri.base.diagnostics import CompileError as CompileError
    from minitri.base.diagnostics import ParseError as ParseError
    from minitri.base.diagnostics import ShapeWarning as ShapeWarning
    from minitri.base.resource_limits import limits as limits
    from minitri.hardware.targets import StageUnavailable as StageUnavailable
    from minitri.program import Lowered as Lowered
    from minitri.program import Program as Program
    from minitri.program_from_stage import load as load
    from minitri.runtime.tuning_policy import tune as tune
    from minitri.tiles.schedule import Options as Options

_HOMES = {
    "minitri.program_from_stage": ("load",),
    "minitri.program": ("Program", "Lowered"),
    "minitri.api": ("compile", "evaluate", "jit"),
    "minitri.base.diagnostics": ("CompileError", "ParseError", "ShapeWarning"),
    "minitri.base.resource_limits": ("limits",),
    "minitri.hardware.targets": ("StageUnavailable",),
    "minitri.tiles.schedule": ("Options",),
    "minitri.runtime.tuning_policy": ("tune",),
    "minitri.base.types": ("bf16", "bool_", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*_HOME_OF, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'minitri' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME_OF[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """Registers the cell magic `%%minitri` when a notebook runs `%load_ext minitri`."""
    from minitri.notebook.magic import load

    load(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
