"""Functions for generated kernels: they make a kernel faster or avoid a compiler bug, but change no result.

    rt.byte_to_f16(x)    x.to(tl.float16), but four elements take four instructions
    rt.settle()          waits for tensor cores

The function `byte_to_f16` takes a tile, and returns the same values as Triton's conversion `.to`. The function
`unknown` returns its argument. The functions `settle` and `wait_for_previous` compute nothing: they only wait. Kernels
call the functions of rt_intrinsics.py as `rt.NAME` (minitri/triton/rt.py). In Triton's interpreter,
minitri/triton/rt_interpreter.py replaces the functions of rt_intrinsics.py by plain operations.
"""

# Bodies are Triton's dialect of Python: types are known to Triton, not to a type checker.
# pyright: basic, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportAssignmentType=false

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait


@tl.core.builtin
def byte_to_f16(x, _semantic: Any = None):
    """Converts i8 or u8 to f16 exactly.

    To convert four bytes to f16, a thread needs four instructions if the bytes are unsigned, and five if the bytes are
    signed.

    An f16 whose high byte is 0x64 and whose low byte is b has the value 1024 + b. To convert a byte b, the code makes
    an f16 with the high byte 0x64 and the low byte b, and subtracts 1024. For signed bytes, the code first adds 128 to
    the byte, by flipping the sign bit. Triton's plain conversion `.to` needs one conversion instruction for each
    element, and a multiprocessor of the GPU executes few conversions at a time.
    """
    bytes = x.dtype.primitive_bitwidth == 8 and x.type.is_block() and x.numel.value >= 4
    if _semantic.builder.options.backend_name != "cuda" or not bytes:
        return x.to(tl.float16, _semantic=_semantic)
    signed = x.dtype.is_int_signed()
    code = f"""{{
        .reg .b32 t, c;
        mov.b32 c, {"0x64806480" if signed else "0x64006400"};
        xor.b32 t, $2, {"0x80808080" if signed else "0"};
        prmt.b32 $0, t, 0x64646464, 0x4140;
        prmt.b32 $1, t, 0x64646464, 0x4342;
        sub.f16x2 $0, $0, c;
        sub.f16x2 $1, $1, c;
    }}"""
    return tl.inline_asm_elementwise(code, "=r,=r,r", [x], dtype=tl.float16, is_pure=True, pack=4, _semantic=_semantic)


@triton.jit
def unknown(start):
    """Returns `start`, but hides from Triton's compiler that the value is a constant.

    The file minitri/triton/workarounds/loops.py explains why kernels need `rt.unknown`.
    """
    return tl.where(tl.program_id(0) < 0, tl.zeros_like(start), start)


@tl.core.builtin
def settle(_semantic: Any = None):
    """Waits until the tensor cores have read all operands that are in registers.

    The file minitri/triton/workarounds/loops.py explains why kernels need `rt.settle`.

    On GPUs that are not of the Hopper generation (sm90), the function does nothing. Without `settle`, a grid program on
    a Hopper GPU continues while tensor cores still read its registers.
    """
    if getattr(_semantic.builder.options, "arch", None) != "sm90":
        return None
    code = "wgmma.wait_group.sync.aligned 0; mov.b32 $0, 0;"  # inline assembly must return a value
    return tl.inline_asm_elementwise(code, "=r", [], dtype=tl.int32, is_pure=False, pack=1, _semantic=_semantic)


@tl.core.builtin
def wait_for_previous(_semantic: Any = None):
    """Waits until the previous kernel in the CUDA stream has ended, so that its results can be read.

    The wait is needed because CUDA's programmatic dependent launch starts a kernel before the previous kernel ends.
    """
    gdc_wait(_semantic=_semantic)
