"""Runs the stages of Triton's compiler, and caches the machine code on disk under minitri's own keys.

The function `compiled` takes three arguments: the input of Triton's compiler (`compiled_stages.ast_source`), the
kernel, and the target. The returned kernel was either compiled now, or read from Triton's cache folder. The one idea:
minitri's cache key takes less time to compute than Triton's cache key. Triton's own cache key contains a hash of all
files of Triton. Each process needs 0.3 s to hash the files of Triton before its first compilation. Instead of a hash,
minitri's cache key contains the version, size and date of Triton's library. Two installations of Triton differ in the
version, size or date of Triton's library.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache as once
from pathlib import Path
from typing import Any
from uuid import uuid4

from minitri.base import pass_logs
from minitri.hardware.targets import Target
from minitri.triton.emit import EmittedKernel
from minitri.triton.small_libdevice import small_copy
from minitri.triton.workarounds.ptxas import mended


def compiled(source: Any, kernel: EmittedKernel, target: Target) -> Any:
    """Returns a compiled kernel from the cache on disk.

    If the kernel is not in the cache, the kernel is compiled and added to the cache.

    Exceptions of Triton's compiler are passed on unchanged.
    """
    if not _is_usual():
        import triton

        return triton.compile(source, target=target.of_triton, options=compile_options(kernel, target))
    name = cache_name(source, kernel, target)
    found = _on_disk(source, name)
    pass_logs.log("cache", f"{kernel.name}: {'compiled' if found is None else 'found on the disk'}")
    return found or _new(source, kernel, target, name)


def compile_options(kernel: EmittedKernel, target: Target) -> dict[str, Any]:
    """Returns the options of Triton's compiler for a kernel.

    In numpy, x * y + z rounds twice, so Triton must not fuse x * y + z into one instruction. Only in kernels with fast
    math, Triton can fuse x * y + z. The options tell Triton not to replace denormals by 0.
    """
    p = kernel.program
    options: dict[str, Any] = {"num_warps": p.warps, "num_stages": p.stages, "enable_fp_fusion": p.relaxed}
    if target.kind == "cuda":
        options |= {"enable_reflect_ftz": False, "maxnreg": p.registers or None, "launch_pdl": p.early_start}
    return options


def _on_disk(source: Any, name: str) -> Any:
    """Returns the cached kernel, or None if the kernel is not in the cache."""
    if not (folder := _folder(name)).exists():
        return None
    try:
        return _loaded(source, folder)
    except Exception:  # damaged files or another format: compile it again
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _new(source: Any, kernel: EmittedKernel, target: Target, name: str) -> Any:
    """Compiles a kernel, and stores all files of the kernel in Triton's cache folder."""
    import triton

    metadata: dict[str, Any] = {"hash": name, "target": target.of_triton, "triton_version": triton.__version__}
    texts = stages(source, kernel, target, metadata)
    # A file for each stage.
    made = {stage: text if isinstance(text, bytes) else str(text).encode() for stage, text in texts}
    made["json"] = json.dumps(metadata, default=vars).encode()  # the dictionary that describes the kernel
    # The folder gets its final name when all files are written, so that no process reads an incomplete kernel. The
    # functions of Triton's own cache are slower, because they make and rename a folder for each file.
    folder = _folder(name)
    unnamed = folder.with_name(f"{name}.{uuid4()}")
    unnamed.mkdir(parents=True)
    for stage, data in made.items():
        (unnamed / f"{kernel.name}.{stage}").write_bytes(data)
    try:
        unnamed.rename(folder)
    except OSError:  # another process has already stored the kernel
        shutil.rmtree(unnamed)
    return _loaded(source, folder)


def _folder(name: str) -> Path:
    from triton import knobs

    return Path(knobs.cache.dir, name)


def _loaded(source: Any, folder: Path) -> Any:
    from triton.compiler.compiler import CompiledKernel

    return CompiledKernel(source, {file.name: str(file) for file in folder.iterdir()}, folder.name)


def stages(source: Any, kernel: EmittedKernel, target: Target, metadata: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the name and result of each stage of Triton's compiler. A stage runs only when the caller requests the
    stage's result.

    Each stage of the compiler adds facts about the kernel to the dictionary `metadata`.
    """
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    gpu = target.of_triton
    backend: Any = make_backend(gpu)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    options = backend.parse_options({**compile_options(kernel, target), **source.parse_options()})
    metadata |= vars(options) | {"target": gpu}
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(gpu, options, functions, modules, context)
    libraries = dict(options.extern_libs or ())
    if "libdevice" in libraries:
        libraries["libdevice"] = small_copy(libraries["libdevice"], module, context)
        options = replace(options, extern_libs=libraries)
    passes: dict[str, Any] = {}
    backend.add_stages(passes, options, source.language)
    for stage, run in passes.items():
        module = run(module, metadata)
        module = mended(module) if stage == "ptx" else module
        yield stage, module


# ---- cache keys ---------------------------------------------------------------------------


def cache_name(source: Any, kernel: EmittedKernel, target: Target) -> str:
    """Returns the name of a kernel in the cache: a digest of the cache key."""
    return hashlib.sha256(json.dumps(key(source, kernel, target), sort_keys=True).encode()).hexdigest()


def key(source: Any, kernel: EmittedKernel, target: Target) -> dict[str, Any]:
    """Returns the cache key: everything that the machine code of a kernel depends on.

    The source text alone does not determine the machine code, because this text does not contain the types of
    arguments.
    """
    return {
        "triton": _triton(), "settings": _settings(), "kernel": kernel.source, "types": source.signature,
        "known": str(source.attrs), "target": str(target), "options": compile_options(kernel, target),
    }  # fmt: skip


def _is_usual() -> bool:
    """Checks whether minitri can run the stages of Triton's compiler without `triton.compile`."""
    from triton import knobs

    # Only `triton.compile` obeys the settings that forbid or move the cache, or that inspect or change the compilation.
    c, hook = knobs.compilation, getattr(knobs.runtime, "add_stages_inspection_hook", None)
    inspects = c.always_compile or c.override or c.dump_ir or c.listener or c.use_ir_loc or hook
    return not (inspects or knobs.cache.manager_class)


@once
def _triton() -> Mapping[str, Any]:
    """Returns the parts of the cache key that are the same for all kernels."""
    import triton

    library = next(iter(sorted((Path(triton.__file__).parent / "_C").glob("libtriton*"))), Path(triton.__file__))
    here = Path(__file__).parent
    # Kernels call minitri's `rt` functions, so the source of these functions belongs to the key.
    ours = b"".join(file.read_bytes() for file in (*sorted(here.glob("rt*.py")), here / "workarounds/ptxas.py"))
    stamp = (library.stat().st_size, library.stat().st_mtime_ns)
    return {"version": triton.__version__, "library": stamp, "functions": hashlib.sha256(ours).hexdigest()}


def _settings() -> Mapping[str, str]:
    """Returns the settings of Triton's compilers from environment variables and from `triton.knobs`."""
    from triton import knobs
    from triton._C.libtriton import get_cache_invalidating_env_vars

    found = {n: v for n, v in os.environ.items() if n.startswith(("TRITON_", "MLIR_", "LLVM_", "NVPTX_", "AMDGCN_"))}
    found |= get_cache_invalidating_env_vars()
    for group in (knobs.compilation, knobs.nvidia, knobs.amd):
        # Settings with paths of tools are left out, because reading the path of a tool makes Triton run the tool.
        names = [n for n, kind in group.knob_descriptors.items() if "tool" not in type(kind).__name__]
        found |= {f"{type(group).__name__}.{n}": str(getattr(group, n)) for n in names}
    return found
