"""Runs Triton's compiler for any target, also on a machine without a GPU, and returns the text of each stage.

The function `build` takes the Python source of the triton stage, the kernels in this source, and a target. It returns
the compiled kernels. The function `stage_text` returns the text of one stage of Triton's compiler. For NVIDIA's GPUs,
the stages of Triton's compiler are TTIR, TTGIR, LLVM IR, PTX and SASS. For AMD's GPUs, the last stage is AMDGCN instead
of PTX and SASS. No function in this file imports torch. If this machine cannot make a stage, such as machine code for
another vendor's GPU, the functions raise `StageUnavailable`.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from minitri.base.nodes import Record
from minitri.base.types import f64
from minitri.hardware.targets import StageUnavailable, Target, require_library
from minitri.triton import cached_compile as machine_code
from minitri.triton.emit import EmittedKernel
from minitri.triton.language_lock import LANGUAGE
from minitri.triton.source import functions

_LOCAL_PATH = re.compile(r"/[^\s\"<>|]*/(?=(?:minitri/triton|triton/language)\b)")  # file paths on this machine


def require_triton() -> None:
    require_library("triton", "pip install triton (it runs on Linux); the stages down to triton need it not")


def jit_functions(text: str) -> dict[str, Any]:
    """Returns the kernels in a source text, by their names, as functions that Triton can compile (`triton.jit`)."""
    require_triton()
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    from minitri.triton import rt

    made = functions(text, {"tl": tl, "libdevice": libdevice, "rt": rt})
    return {name: triton.jit(f) for name, f in made.items()}


class Kind(Record):
    """The facts about a kernel's arguments that affect the machine code.

    If two calls of a kernel have an equal `Kind`, they use the same machine code.

    `aligned`: whether the address of each pointer is a multiple of 16 bytes.
    `numbers`: the type of each size ("i32" or "i64"), and whether the size is a multiple of 16.
    """

    aligned: tuple[bool, ...]
    numbers: tuple[tuple[str, bool], ...]

    @staticmethod
    def of(pointers: Sequence[int], numbers: Sequence[int]) -> Kind:
        sizes = tuple(("i32" if -(2**31) <= n < 2**31 else "i64", n % 16 == 0) for n in numbers)
        return Kind(tuple(p % 16 == 0 for p in pointers), sizes)

    @staticmethod
    def usual(kernel: EmittedKernel) -> Kind:
        """Returns the `Kind` (facts about arguments) for a kernel that is compiled before the first call.

        The function assumes that pointers are aligned, because torch allocates aligned memory. It also assumes that
        sizes fit into 32 bits.

        A size counts as a multiple of 16 only if all coefficients in its expression are multiples of 16, as in `16*N`.
        """
        sizes = tuple(("i32", all(c % 16 == 0 for _, c in d.terms)) for d in kernel.sizes)
        return Kind((True,) * len(kernel.pointers), sizes)


def build(text: str, kernels: Sequence[EmittedKernel], target: Target) -> list[Any]:
    """Compiles kernels with Triton ahead of time, without launching them, and returns the compiled kernels."""
    jitted = jit_functions(text)
    return [compiled(ast_source(jitted[k.name], k, Kind.usual(k)), k, target) for k in kernels]


def ast_source(function: Any, kernel: EmittedKernel, kind: Kind) -> Any:
    """Returns the input of Triton's compiler: a jit function with the types of its arguments."""
    from triton.compiler import ASTSource

    types = {f"p{k}": f"*{b.dtype.signature}" for k, b in enumerate(kernel.pointers)}
    types |= {f"s{k}": bits for k, (bits, _) in enumerate(kind.numbers)}
    types |= {f"a{k}": f64.signature for k in range(len(kernel.scalars))}
    types |= {d.name: d.signature for d in kernel.descriptors}
    round16 = [*kind.aligned, *(divisible for _, divisible in kind.numbers)]
    attrs = {(k,): [["tt.divisibility", 16]] for k, is_round in enumerate(round16) if is_round}
    return ASTSource(fn=function, signature=types, constexprs={}, attrs=attrs)


def compiled(source: Any, kernel: EmittedKernel, target: Target) -> Any:
    """Returns the kernel, compiled by Triton.

    Raises StageUnavailable MT0402 with the reason if Triton cannot compile the kernel.
    """
    try:
        with LANGUAGE.compiled():
            return machine_code.compiled(source, kernel, target)
    except Exception as error:  # Triton raises exceptions of many types
        first = str(error).strip().splitlines()[:1]
        message = f"Triton could not compile {kernel.name} for {target}: {''.join(first)[:200]}"
        help = "try another target, or other block sizes"
        if isinstance(error, OSError) or "home directory" in message:
            help = "TRITON_CACHE_DIR names a folder that can be written"
        raise StageUnavailable("MT0402", message, help=help) from error


def lowered_to_ttgir(text: str, kernel: EmittedKernel, target: Target) -> Iterator[tuple[str, str]]:
    """Yields the name and text of Triton's first two stages, TTIR and TTGIR.

    Triton's cache is not used, so that all passes of Triton run.
    """
    source = ast_source(jit_functions(text)[kernel.name], kernel, Kind.usual(kernel))
    with LANGUAGE.compiled():
        for stage, module in islice(machine_code.stages(source, kernel, target, {}), 2):
            yield stage, str(module)


def stage_text(texts: Mapping[str, str], stage: str) -> str:
    """Returns one text for a stage: the texts of all kernels, one after another.

    A comment with the kernel's name comes before the text of each kernel.
    """
    comment = ";" if stage in ("llir", "amdgcn") else "//"
    return "\n".join(f"{comment} kernel {name}\n{text}" for name, text in texts.items())


def disassembly(asm: Mapping[str, Any], ptx: str, kernel: EmittedKernel, target: Target) -> str:
    """Returns the machine code of an NVIDIA kernel, with the source line of each instruction.

    The argument `ptx` is a PTX text of the same kernel. The source lines in `ptx` can differ from the source lines in
    `asm`. If `ptx` and `asm` have equal machine instructions, the result shows the source lines of `ptx`, and otherwise
    the source lines of `asm`.
    """
    try:
        located = _assembled(ptx, kernel, target)
    except RuntimeError:  # Triton raises RuntimeError if its assembler fails
        located = asm["cubin"]
    shown = located if _instructions(located) == _instructions(asm["cubin"]) else asm["cubin"]
    return inspected(shown, kernel.name, "nvdisasm", "--print-line-info-inline", "--print-code")


def _assembled(ptx: str, kernel: EmittedKernel, target: Target) -> bytes:
    """Returns the machine code (cubin) that Triton's assembler makes from a PTX text."""
    from triton.compiler.compiler import Language, make_backend

    backend = make_backend(target.of_triton)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, backend.parse_options(machine_code.compile_options(kernel, target)), Language.TRITON)
    return stages["cubin"](ptx, {})


def inspected(cubin: bytes, name: str, tool: str, *options: str) -> str:
    """Returns the text that one of NVIDIA's command-line tools prints about machine code.

    `tool` is the name of the command-line tool, which is part of the triton package.
    """
    from triton import knobs

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kernel.cubin"
        path.write_bytes(cubin)
        words = [getattr(knobs.nvidia, tool).path, *options, str(path)]
        try:
            return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise _not_shown(name, error, tool) from None


def _not_shown(name: str, error: Exception, tool: str) -> StageUnavailable:
    message = f"the machine code of {name} cannot be shown: {type(error).__name__} of {tool}"
    return StageUnavailable("MT0402", message, help="the stages down to ptx are there")


def _instructions(cubin: bytes) -> list[bytes]:
    """Returns the sections of an ELF file that contain machine code, such as `.text.k0`."""
    table, size, count, names = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + size * k) for k in range(count)]
    name_of = {at: cubin[headers[names][4] + at :].partition(b"\0")[0] for at, *_ in headers}
    places = [(start, length) for at, _, _, _, start, length in headers if name_of[at].startswith(b".text")]
    return [cubin[start : start + length] for start, length in places]


def kernel_text(asm: Mapping[str, Any], stage: str, name: str) -> str:
    """Returns the text of one stage of one kernel.

    For the stage SASS, the first access to the text runs a disassembler. If the disassembler fails, raises
    StageUnavailable.
    """
    try:
        return _LOCAL_PATH.sub("", asm[stage])
    except (OSError, subprocess.SubprocessError) as error:
        raise _not_shown(name, error, "cuobjdump") from None
