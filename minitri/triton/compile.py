"""Triton's compiler, stage after stage, and its machine code kept on disk under a name of ours.

In: the input of Triton's compiler (`artifacts.ast_source`), the kernel, a target. Out: Triton's compiled kernel, new or
from its cache folder. The one idea: Triton names its entries by a hash of all its own files. That takes each process
0.3 s before it compiles anything. The version, size and date of its library identify Triton as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from functools import cache as once
from pathlib import Path
from typing import Any

from minitri.base import logs
from minitri.hardware.targets import Target
from minitri.triton.emit import EmittedKernel
from minitri.triton.workarounds.ptxas import mended


def compiled(source: Any, kernel: EmittedKernel, target: Target) -> Any:
    """The kernel from the disk, or a new one, which is kept there. Raises what Triton raises."""
    if not _is_usual():
        import triton

        return triton.compile(source, target=target.of_triton, options=target.compile_options(kernel))
    name = _name(source, kernel, target)
    found = _on_disk(source, kernel, name)
    logs.log("cache", f"{kernel.name}: {'compiled' if found is None else 'found on the disk'}")
    return found or _new(source, kernel, target, name)


def _on_disk(source: Any, kernel: EmittedKernel, name: str) -> Any:
    """The kernel that is kept; None if there is none."""
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.cache import get_cache_manager

    try:
        group = get_cache_manager(name).get_group(f"{kernel.name}.json")
        return CompiledKernel(source, group, name) if group else None
    except Exception:  # torn files, another layout: it is compiled again
        return None


def _new(source: Any, kernel: EmittedKernel, target: Target, name: str) -> Any:
    """Kept as triton.compile keeps the stages: a file for each, and a list of them."""
    import triton
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.cache import get_cache_manager

    keeper, files = get_cache_manager(name), dict[str, str]()
    metadata: dict[str, Any] = {"hash": name, "target": target.of_triton, "triton_version": triton.__version__}
    for stage, module in stages(source, kernel, target, metadata):
        files[f"{kernel.name}.{stage}"] = keeper.put(module, f"{kernel.name}.{stage}")
    about = f"{kernel.name}.json"
    files[about] = keeper.put(json.dumps(metadata, default=vars), about, binary=False)
    keeper.put_group(about, files)
    return CompiledKernel(source, files, name)


def stages(source: Any, kernel: EmittedKernel, target: Target, metadata: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Triton's stages of a kernel by name, each made when it is asked for. `metadata`: what they say about it."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    gpu = target.of_triton
    backend: Any = make_backend(gpu)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    options = backend.parse_options({**target.compile_options(kernel), **source.parse_options()})
    metadata |= vars(options) | {"target": gpu}
    passes: dict[str, Any] = {}
    backend.add_stages(passes, options, source.language)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(gpu, options, functions, modules, context)
    for stage, run in passes.items():
        module = run(module, metadata)
        module = mended(module) if stage == "ptx" else module
        yield stage, module


# ---- names -------------------------------------------------------------------------------


def _name(source: Any, kernel: EmittedKernel, target: Target) -> str:
    return hashlib.sha256(json.dumps(key(source, kernel, target), sort_keys=True).encode()).hexdigest()


def key(source: Any, kernel: EmittedKernel, target: Target) -> dict[str, Any]:
    """Everything that the machine code of a kernel depends on. Its text alone does not say the types."""
    return {
        "triton": _triton(), "settings": _settings(), "kernel": kernel.source, "types": source.signature,
        "known": str(source.attrs), "target": str(target), "options": target.compile_options(kernel),
    }  # fmt: skip


def _is_usual() -> bool:
    """Whether Triton may take a kernel from the disk, and nothing wants to see or change how it compiles."""
    from triton import knobs

    c, hook = knobs.compilation, getattr(knobs.runtime, "add_stages_inspection_hook", None)
    return not (c.always_compile or c.override or c.dump_ir or c.listener or c.use_ir_loc or hook)


@once
def _triton() -> Mapping[str, Any]:
    """What besides the kernel and settings decides about its machine code: Triton, our functions for kernels."""
    import triton

    library = next(iter(sorted((Path(triton.__file__).parent / "_C").glob("libtriton*"))), Path(triton.__file__))
    ours = b"".join(
        (Path(__file__).parent / name).read_bytes()
        for name in ("rt.py", "rt_compiler_hints.py", "rt_fast_math.py", "workarounds/ptxas.py")
    )
    stamp = (library.stat().st_size, library.stat().st_mtime_ns)
    return {"version": triton.__version__, "library": stamp, "functions": hashlib.sha256(ours).hexdigest()}


def _settings() -> Mapping[str, str]:
    """Those of Triton's compilers, of the environment or set in this process; not where its tools lie, which it
    would run to tell."""
    from triton import knobs
    from triton._C.libtriton import get_cache_invalidating_env_vars

    found = {n: v for n, v in os.environ.items() if n.startswith(("TRITON_", "MLIR_", "LLVM_", "NVPTX_", "AMDGCN_"))}
    found |= get_cache_invalidating_env_vars()
    for group in (knobs.compilation, knobs.nvidia, knobs.amd):
        kinds = {n: type(kind).__name__ for n, kind in vars(type(group)).items() if not n.startswith("_")}
        found |= {
            f"{type(group).__name__}.{n}": str(getattr(group, n)) for n, kind in kinds.items() if "tool" not in kind
        }
    return found
