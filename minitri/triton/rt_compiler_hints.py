"""Functions that generated kernels call for speed or for a compiler; they change no result.

    rt.byte_to_f16(x)    x.to(tl.float16), four elements in four instructions
    rt.settle()          waits for tensor cores

In: tiles, or nothing. Out: the value that the plain spelling has. Kernels reach these functions through
minitri/triton/rt.py. In Triton's interpreter they do nothing (minitri/triton/rt_interpreter.py).
"""

# Bodies are Triton's dialect of Python: types are known to Triton, not to a type checker.
# pyright: basic, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportAssignmentType=false

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait


@tl.core.builtin
def byte_to_f16(x, _semantic: Any = None):
    """i8 or u8, exactly. Four at a time, in four instructions, five with a sign: the half whose bytes are 0x64 and b is
    1024 + b. (A sign bit is flipped first, which adds 128.) `.to` is a conversion for each, of which a multiprocessor
    makes few at a time."""
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
    """`start`, as a value that Triton's compiler does not know (minitri/triton/workarounds/loops.py says why)."""
    return tl.where(tl.program_id(0) < 0, tl.zeros_like(start), start)


@tl.core.builtin
def settle(_semantic: Any = None):
    """Waits until tensor cores have read their registers (minitri/triton/workarounds/loops.py says why). Only Hopper's do while the
    program goes on."""
    if getattr(_semantic.builder.options, "arch", None) != "sm90":
        return None
    code = "wgmma.wait_group.sync.aligned 0; mov.b32 $0, 0;"  # an inline_asm has to give something
    return tl.inline_asm_elementwise(code, "=r", [], dtype=tl.int32, is_pure=False, pack=1, _semantic=_semantic)


@tl.core.builtin
def wait_for_previous(_semantic: Any = None):
    """Waits until the kernel before this one in the stream has ended, and what it wrote can be read. (It may have been
    started before that: "programmatic dependent launch".)"""
    gdc_wait(_semantic=_semantic)
