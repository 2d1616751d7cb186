"""Lists the targets of compilation (GPUs and Triton's interpreter), and the stages of each target.

The method `Target.parse` takes the name of a target, in capital or small letters. A target's name is `interpreter`, an
architecture such as `cuda:90`, or a GPU such as `a100`. The file chips.toml has the names of GPUs. The property
`of_triton` gives the target as Triton's `GPUTarget`. The error `StageUnavailable` is raised for a stage, such as
machine code, that this machine or target cannot make.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, NamedTuple

from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.toml_tables import table_beside

CUDA_STAGES = ("ttir", "ttgir", "llir", "ptx", "sass")
ALIGNMENT = 16  # bytes: a tensor descriptor needs addresses and strides that are multiples of this
ARCHITECTURES = table_beside(__file__, "architectures.toml")
CHIPS = table_beside(__file__, "chips.toml")
GPUS: dict[str, str] = {name: row["architecture"] for name, row in CHIPS["chips"].items()}  # "a100" has "cuda:80"
TARGETS = (*(f"{kind}:{arch}" for kind, rows in ARCHITECTURES.items() for arch in rows), "interpreter")
HIP_STAGES = ("ttir", "ttgir", "llir", "amdgcn")


class StageUnavailable(CompileError):
    """Raised if a compilation stage, such as machine code, is not available on this machine or for this target. The
    field `help` says what would make the stage available.
    """


def require_library(module: str, help: str = "") -> Any:
    """Returns a module of another library, such as `torch`. Raises StageUnavailable MT0402 if the library is not
    installed.
    """
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        message, help = f"{package} is not installed", help or f"pip install {package}"
        raise StageUnavailable("MT0402", message, help=help) from None


class Target(NamedTuple):
    """A compilation target: `cuda:90` (compute capability 9.0), `hip:gfx942`, or the interpreter. If the user has named
    a GPU, the field `gpu` is the name of that GPU. Cost models then use the GPU's figures
    (minitri/hardware/chips.toml).
    """

    kind: str
    arch: str
    gpu: str = ""

    @staticmethod
    def parse(text: str) -> Target:
        """Returns the target that a text names. Raises CompileError MT0402 if no target has that name."""
        name = str(text).lower()
        if name not in (*GPUS, *TARGETS):
            every = f"GPUs are {', '.join(GPUS)}; other targets are {', '.join(TARGETS)}"
            raise CompileError("MT0402", f"there is no target `{str(text)[:40]}`", help=_suggested(name) or every)
        kind, _, arch = GPUS.get(name, name).partition(":")
        return Target(kind, arch, name if name in GPUS else "")

    def __str__(self) -> str:
        return self.gpu or (f"{self.kind}:{self.arch}" if self.arch else self.kind)

    @property
    def stages(self) -> tuple[str, ...]:
        return {"cuda": CUDA_STAGES, "hip": HIP_STAGES}.get(self.kind, ())

    @property
    def has_descriptors(self) -> bool:
        """Whether the GPU has a copy engine (TMA), which copies blocks to shared memory. NVIDIA GPUs have a copy engine
        since Hopper.
        """
        return self.kind == "cuda" and int(self.arch) >= 90

    # Whether a kernel can start before the previous kernel has ended (programmatic dependent launch). NVIDIA GPUs have
    # programmatic dependent launch since Hopper, which is also the first GPU with a copy engine.
    has_early_starts = has_descriptors

    @property
    def warp(self) -> int:
        """The number of threads in a warp."""
        return 64 if self.kind == "hip" else 32

    @property
    def of_triton(self) -> Any:
        """The target as Triton's `GPUTarget`."""
        from triton.backends.compiler import GPUTarget

        arch: Any = int(self.arch) if self.kind == "cuda" else self.arch
        return GPUTarget(self.kind, arch, self.warp)


def _suggested(name: str) -> str:
    """Returns a hint that names similar targets, or "" if no target is similar."""
    known = {re.sub(r"\W", "", target): target for target in (*GPUS, *TARGETS)}
    wanted = re.sub(r"[\W_]", "", name.replace("sm", "cuda"))[:40]
    # for example, `a10` and `A100-80GB` are similar to a100, `4090` to rtx4090, `sm_90` to cuda:90, and `gfx942` to
    # hip:gfx942
    near = [t for word, t in known.items() if len(wanted) > 2 and _begins_or_ends(word, wanted)]
    if len(near) > 3:  # too many for a hint, as for the name `cuda`
        return ""
    return f"did you mean {listed([f'`{t}`' for t in near], 'or')}?" if near else suggest(name, known.values())


def _begins_or_ends(a: str, b: str) -> bool:
    """Checks whether one of two names begins or ends with the other name."""
    short, long = sorted((a, b), key=len)
    return long.startswith(short) or long.endswith(short)


INTERPRETER = Target("interpreter", "")
