"""Triton's own stages, for any target, on a machine without a GPU too.

In: the module text of the triton stage, its kernels, a target. Out: for each kernel the texts
that Triton's compiler made: TTIR, TTGIR, LLVM IR, PTX and SASS (or AMDGCN). torch is not
imported. What a machine cannot make (a stage of another vendor) is a `StageUnavailable`.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from minitri.base.types import f64
from minitri.hardware.targets import StageUnavailable, Target
from minitri.triton import compile as machine_code
from minitri.triton.emit import EmittedKernel
from minitri.triton.language_lock import LANGUAGE
from minitri.triton.source import functions

_MACHINE = re.compile(r"/[^\s\"<>|]*/(?=(?:minitri/triton|triton/language)\b)")  # where this machine keeps them


def triton_namespace() -> dict[str, Any]:
    """What generated kernels see when they are compiled."""
    require_triton()
    import triton.language as tl
    from triton.language.extra import libdevice

    from minitri.triton import rt

    return {"tl": tl, "libdevice": libdevice, "rt": rt}


def require_triton() -> None:
    try:
        import triton  # noqa: F401
    except ImportError:
        help = "pip install triton (it runs on Linux); the stages down to triton need it not"
        raise StageUnavailable("MT0402", "triton is not installed", help=help) from None


def jit_functions(text: str) -> dict[str, Any]:
    require_triton()
    import triton

    return {name: triton.jit(f) for name, f in functions(text, triton_namespace()).items()}


@dataclass(frozen=True, slots=True)
class Kind:
    """What Triton knows of a kernel's arguments when it compiles: a class of them shares machine code.

    aligned   which pointers are multiples of 16 bytes
    numbers   of each size whether it fits in 32 bits, and whether it is a multiple of 16
    """

    aligned: tuple[bool, ...]
    numbers: tuple[tuple[str, bool], ...]

    @staticmethod
    def of(pointers: Sequence[int], numbers: Sequence[int]) -> Kind:
        sizes = tuple(("i32" if -(2**31) <= n < 2**31 else "i64", n % 16 == 0) for n in numbers)
        return Kind(tuple(p % 16 == 0 for p in pointers), sizes)

    @staticmethod
    def usual(kernel: EmittedKernel) -> Kind:
        """Pointers as torch allocates them, sizes of which nothing is known but what they are times a number."""
        sizes = tuple(("i32", all(c % 16 == 0 for _, c in d.terms)) for d in kernel.sizes)
        return Kind((True,) * len(kernel.pointers), sizes)


@dataclass(frozen=True, slots=True)
class Built:
    """What Triton made of a kernel: its stages by name, and the shared memory that a launch gives it (bytes)."""

    asm: Mapping[str, Any]
    shared: int


def build(text: str, kernels: Sequence[EmittedKernel], target: Target) -> list[Built]:
    """Every kernel, compiled ahead of time; nothing is launched."""
    jitted = jit_functions(text)
    made = [compiled(ast_source(jitted[k.name], k, Kind.usual(k)), k, target) for k in kernels]
    return [Built(m.asm, m.metadata.shared) for m in made]


def ast_source(function: Any, kernel: EmittedKernel, kind: Kind) -> Any:
    """What Triton compiles: a jit-compiled function with the types of its arguments."""
    from triton.compiler import ASTSource

    types = {f"p{k}": f"*{b.dtype.signature}" for k, b in enumerate(kernel.pointers)}
    types |= {f"s{k}": bits for k, (bits, _) in enumerate(kind.numbers)}
    types |= {f"a{k}": f64.signature for k in range(len(kernel.scalars))}
    types |= {d.name: d.signature for d in kernel.descriptors}
    round16 = [*kind.aligned, *(divisible for _, divisible in kind.numbers)]
    attrs = {(k,): [["tt.divisibility", 16]] for k, is_round in enumerate(round16) if is_round}
    return ASTSource(fn=function, signature=types, constexprs={}, attrs=attrs)


def compiled(source: Any, kernel: EmittedKernel, target: Target) -> Any:
    """Triton's compiled kernel; StageUnavailable MT0402 with the reason if it cannot be."""
    try:
        with LANGUAGE.compiled():
            return machine_code.compiled(source, kernel, target)
    except Exception as error:  # Triton raises its own and bare exceptions alike
        first = str(error).strip().splitlines()[:1]
        message = f"Triton could not compile {kernel.name} for {target}: {''.join(first)[:200]}"
        help = "try another target, or other block sizes"
        if isinstance(error, OSError) or "home directory" in message:
            help = "TRITON_CACHE_DIR names a folder that can be written"
        raise StageUnavailable("MT0402", message, help=help) from error


def lowered_to_ttgir(text: str, kernel: EmittedKernel, target: Target) -> Iterator[tuple[str, str]]:
    """Triton's first two stages of a kernel, past its cache, so that its passes run."""
    source = ast_source(jit_functions(text)[kernel.name], kernel, Kind.usual(kernel))
    with LANGUAGE.compiled():
        for stage, module in islice(machine_code.stages(source, kernel, target, {}), 2):
            yield stage, str(module)


def stage_text(compiled: Sequence[Built], names: Sequence[str], stage: str) -> str:
    """One stage of all kernels, each under its name."""
    parts: list[str] = []
    for name, built in zip(names, compiled):
        text = kernel_text(built.asm, stage, name)
        comment = {"ttir": "//", "ttgir": "//", "llir": ";", "ptx": "//", "sass": "//", "amdgcn": ";"}[stage]
        parts.append(f"{comment} kernel {name}\n{text}")
    return "\n".join(parts)


def disassembly(asm: Mapping[str, Any], ptx: str, kernel: EmittedKernel, target: Target) -> str:
    """The machine code of an NVIDIA kernel with the source line of each instruction. `ptx` is that of
    the kernel, with other lines perhaps; if it compiles to the same instructions, its lines count."""
    own = _disassembled(asm["cubin"], kernel.name)
    try:
        located = _disassembled(_assembled(ptx, kernel, target), kernel.name)
    except RuntimeError:  # Triton's way to say that its assembler has failed
        return own
    return located if _instructions(located) == _instructions(own) else own


def _assembled(ptx: str, kernel: EmittedKernel, target: Target) -> bytes:
    """What Triton makes of a PTX text."""
    from triton.compiler.compiler import Language, make_backend

    backend = make_backend(target.of_triton)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, backend.parse_options(target.compile_options(kernel)), Language.TRITON)
    return stages["cubin"](ptx, {})


def _disassembled(cubin: bytes, name: str) -> str:
    return inspected(cubin, name, "nvdisasm", "--print-line-info-inline", "--print-code")


def inspected(cubin: bytes, name: str, tool: str, *options: str) -> str:
    """What a tool of NVIDIA's that comes with triton says of machine code."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kernel.cubin"
        path.write_bytes(cubin)
        words = [getattr(knobs.nvidia, tool).path, *options, str(path)]
        try:
            return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.SubprocessError) as error:
            message = f"the machine code of {name} cannot be shown: {type(error).__name__} of {tool}"
            raise StageUnavailable("MT0402", message, help="the stages down to ptx are there") from None


def _instructions(disassembly: str) -> list[str]:
    return [line.strip() for line in disassembly.split("\n") if line.lstrip().startswith("/*")]


def kernel_text(asm: Mapping[str, Any], stage: str, name: str) -> str:
    """A stage of one kernel. SASS is made when it is asked for, by a tool that may fail."""
    try:
        return _MACHINE.sub("", asm[stage])
    except (OSError, subprocess.SubprocessError) as error:
        message = f"the machine code of {name} cannot be shown: {type(error).__name__} of cuobjdump"
        raise StageUnavailable("MT0402", message, help="the stages down to ptx are there") from None
