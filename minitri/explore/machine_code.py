"""Makes Triton's stages for the kernels of a program. Equal kernels are compiled once, and different kernels are
compiled in parallel.

    k0, k7, k14      three equal layers of a network become three equal kernels

A `MachineCode` is made from a compilation, and has a `KernelCode` for each distinct kernel. A stage is made when it is
first requested. The method `make` makes all stages in several threads. Triton's compiler and NVIDIA's tools release
Python's global interpreter lock, so the threads run at the same time.

Two kernels are equal if Triton gets the same input for both: source, types of arguments and options. Equal kernels
differ only in their names. The file triton_provenance.py finds, for each line of a stage, the graph nodes from which
the line was made.
"""

import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from minitri.base.diagnostics import listed
from minitri.base.nodes import grouped
from minitri.explore.debug_locations import straightened
from minitri.hardware.targets import StageUnavailable, Target
from minitri.pipeline import Compilation
from minitri.triton import compiled_stages
from minitri.triton.cached_compile import cache_name
from minitri.triton.emit import EmittedKernel

Tell = Callable[[float, str], None]  # receives the finished fraction, from 0 to 1, and the name of the step


class KernelCode:
    """Triton's stages of one kernel, such as `ttir` and `ptx`.

    `twins` has the names of the kernels that are equal to this kernel.

    Each property raises StageUnavailable (MT0402) if Triton or one of NVIDIA's tools fails.
    """

    def __init__(self, kernel: EmittedKernel, twins: Iterable[str], source: Any, target: Target) -> None:
        self.kernel, self.name, self.source, self.target = kernel, kernel.name, source, target
        self.twins = tuple(twins)
        self._made: dict[str, Any] = {}  # no cached_property: before Python 3.12 threads wait for each other there

    @property
    def title(self) -> str:
        """Returns a line with the names of equal kernels, such as `k0, the same as k7 and k14`."""
        return f"{self.name}, the same as {listed(self.twins)}" if self.twins else self.name

    @property
    def built(self) -> Any:
        """The compiled kernel, an object of Triton's compiler."""
        return self._once("built", lambda: compiled_stages.compiled(self.source, self.kernel, self.target))

    def text(self, stage: str) -> str:
        return self._once(stage, lambda: compiled_stages.kernel_text(self.built.asm, stage, self.name))

    @property
    def disassembly(self) -> str:
        """The machine code for an NVIDIA GPU, with the line of the generated source at each instruction."""
        ptx = straightened(self.built.asm["ptx"])
        return self._once("lines", lambda: compiled_stages.disassembly(self.built.asm, ptx, self.kernel, self.target))

    def make(self) -> None:
        """Compiles the kernel to all stages of the target, and disassembles its machine code.

        If a stage fails, `make` raises no exception: the exception is raised when the stage is requested.
        """
        with suppress(StageUnavailable):
            for stage in self.target.stages:
                self.text(stage)
            if "sass" in self.target.stages:
                self.disassembly  # noqa: B018

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]


class MachineCode:
    """Triton's stages, such as `ttir` and `ptx`, of all kernels of a compilation."""

    def __init__(self, compilation: Compilation) -> None:
        self.compilation, self.target = compilation, compilation.context.target

    @cached_property
    def kernels(self) -> tuple[KernelCode, ...]:
        """One `KernelCode` for each distinct kernel, in the order in which the program launches the kernels."""
        functions = compiled_stages.jit_functions(self.compilation.module_text)
        kernels = self.compilation.value("triton")
        made = [(k, compiled_stages.ast_source(functions[k.name], k, compiled_stages.Kind.usual(k))) for k in kernels]
        groups = grouped((_identity(*one, self.target), one) for one in made)
        each = ((*first, [k.name for k, _ in others]) for first, *others in groups.values())
        return tuple(KernelCode(kernel, twins, source, self.target) for kernel, source, twins in each)

    def text(self, stage: str) -> str:
        """Returns the text of the stage `stage` of all distinct kernels.

        Above the text of each kernel is a line with the kernel's name and the names of equal kernels.
        """
        return compiled_stages.stage_text({k.title: k.text(stage) for k in self.kernels}, stage)

    def make(self, tell: Tell) -> None:
        """Makes every stage of every kernel. As many kernels are compiled at the same time as the machine has
        processors.
        """
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            at_work = [pool.submit(k.make) for k in self.kernels]
            for done, _ in enumerate(as_completed(at_work), 1):
                tell(done / len(at_work), f"Triton: kernel {done} of {len(at_work)}")


def _identity(kernel: EmittedKernel, source: Any, target: Target) -> str:
    """Returns a digest of the input of Triton's compiler: equal digests mean equal kernels."""
    # equal kernels can have different names
    nameless = replace(kernel, source=re.sub(r"^def \w+\(", "def kernel(", kernel.source))
    return cache_name(source, nameless, target)
