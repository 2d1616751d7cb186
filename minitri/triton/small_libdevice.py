"""Makes small copies of libdevice, CUDA's library of mathematical functions, so that Triton compiles kernels faster.

    exp(x)      the kernel calls `__nv_expf`, one of 350 functions of libdevice

Triton's compiler reads all of libdevice for each kernel that calls a function of libdevice. Reading all of libdevice
takes 20 to 45 ms. While Triton reads libdevice, no other thread can run Python. Reading a small copy of libdevice takes
1 ms.

The function `small_copy` takes a kernel as TTIR (Triton's first intermediate representation). It copies from libdevice
the functions that the kernel calls, and returns the path of the copy. The linker of Triton's compiler makes the small
copy of libdevice, as text of LLVM IR. The copy of libdevice is a file in Triton's cache folder. Every small copy of
libdevice contains the functions that kernels call most often (`COMMON`). Most kernels can therefore use the same copy.

Each function of libdevice has two versions: one version replaces denormals by 0, and one version keeps denormals. A
branch in each function of libdevice selects the version. Triton's compiler decides this branch only after LLVM's
optimisations, so the branch sometimes remains in the machine code. Every function in a small copy of libdevice keeps
denormals. No kernel of minitri calls the versions that replace denormals by 0.

This module makes no copies of the libraries of AMD's GPUs.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

COMMON = ("exp", "log", "log1p", "erf", "tanh", "copysign", "sqrt", "rsqrt")
CALLED = re.compile(r'symbol = "(__nv_\w+)"')
TURNED = re.compile(r"\bmath\.(?!abs|fma)(\w+)")  # Triton turns `math.sqrt` into a call of `__nv_sqrtf` or `__nv_sqrt`
HIDDEN = re.compile(r"^define internal (.*@__nv_)", re.MULTILINE)  # the linker hides functions from other modules
QUESTION = re.compile(r'^(@\S+) = .*"__CUDA_FTZ\\00"', re.MULTILINE)  # are denormals replaced by 0?


def small_copy(library: str, module: Any, context: Any) -> str:
    """Copies from the file `library` the functions that a kernel calls, and returns the path of the copy. If the kernel
    calls no function of libdevice, returns the path `library` unchanged.

    `module` is the kernel, and `context` is the MLIR context of the kernel.
    """
    from triton.runtime.cache import get_cache_manager

    text = str(module)
    called = {f"__nv_{name}{end}" for name in TURNED.findall(text) for end in ("", "f")} | {*CALLED.findall(text)}
    if not called:
        return library
    about, names = Path(library).stat(), sorted(called | {f"__nv_{name}f" for name in COMMON})
    key = [library, about.st_size, about.st_mtime_ns, *names]
    cache = get_cache_manager(hashlib.sha256(str(key).encode()).hexdigest())
    if (found := cache.get_file("libdevice.ll")) is None:
        wanted = cache.put("".join(f"llvm.func @{name}()\n" for name in names), "wanted.mlir", binary=False)
        found = cache.put(_linked(library, wanted, context), "libdevice.ll", binary=False)
    return found


def _linked(library: str, wanted: str, context: Any) -> str:
    """Returns LLVM IR of the functions of `library` that the file `wanted` names."""
    from triton._C.libtriton import ir, llvm

    llvm.init_targets()
    module = llvm.to_module(ir.parse_mlir_module(wanted, context), llvm.context())
    llvm.attach_datalayout(module, "nvptx64-nvidia-cuda", "sm_80", "")
    llvm.link_extern_libs(module, [library])
    text = str(module)
    for name in QUESTION.findall(text):
        text = re.sub(rf"call i32 @__nvvm_reflect\(ptr {re.escape(name)}\).*", "add i32 0, 0", text)
    return HIDDEN.sub(r"define \1", text)
