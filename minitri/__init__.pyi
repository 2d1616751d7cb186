# The public names of minitri, and the modules that define them. minitri/__init__.py imports a module when one of its
# names is first used.

from typing import Any

from minitri.api import compile as compile
from minitri.api import evaluate as evaluate
from minitri.api import jit as jit
from minitri.base.diagnostics import CompileError as CompileError
from minitri.base.diagnostics import ParseError as ParseError
from minitri.base.diagnostics import ShapeWarning as ShapeWarning
from minitri.base.resource_limits import limits as limits
from minitri.base.types import bf16 as bf16
from minitri.base.types import bool_ as bool_
from minitri.base.types import f16 as f16
from minitri.base.types import f32 as f32
from minitri.base.types import f64 as f64
from minitri.base.types import i8 as i8
from minitri.base.types import i16 as i16
from minitri.base.types import i32 as i32
from minitri.base.types import i64 as i64
from minitri.base.types import u8 as u8
from minitri.base.types import u16 as u16
from minitri.base.types import u32 as u32
from minitri.base.types import u64 as u64
from minitri.hardware.targets import StageUnavailable as StageUnavailable
from minitri.program import Lowered as Lowered
from minitri.program import Program as Program
from minitri.program_from_stage import load as load
from minitri.runtime.tuning_policy import tune as tune
from minitri.tiles.schedule import Options as Options

__version__: str

def load_ipython_extension(shell: Any) -> None: ...
