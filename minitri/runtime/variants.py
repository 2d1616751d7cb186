"""Keeps the compiled kernels of a program: one `Executable` for each combination of sizes and layouts. This module also
chooses the `Executable` for each call.

On a GPU, each of the first eight shapes gets its own kernels, in which sizes and strides are literals. The ninth and
all later shapes share general kernels. General kernels receive the sizes as arguments. General kernels contain a size
as a literal only if this size was the same in all of the first eight shapes. The interpreter always gets kernels for
the sizes of the call.

A program with the effort "quick" or "full" measures schedules at the first call of a shape (tuning_policy.py). This
module does not handle calls that repeat an earlier call (see replay.py).
"""

from dataclasses import replace
from typing import Any

from minitri.base.lru_cache import Recent
from minitri.base_program import BaseProgram, with_measured
from minitri.hardware.targets import Target
from minitri.runtime.call_binding import Call
from minitri.runtime.launch import Executable, target_of
from minitri.tiles.schedule import Options
from minitri.trust import run_stage

MAX_VARIANTS = 64  # executables kept for one program
MAX_SPECIALISED = 8  # shapes that get their own kernels on a GPU


class Variants:
    """The `Executable` objects (compiled kernels) of one program.

    `kept`: the `Executable` objects, one for each compilation context.
    `shapes`: the sizes and strides of the calls whose kernels were compiled for exactly one shape.
    """

    def __init__(self) -> None:
        self.kept: Recent[Any, Executable] = Recent(MAX_VARIANTS)
        self.shapes: set[Any] = set()

    def executable(self, program: BaseProgram, call: Call) -> Executable:
        """Returns the kernels for a call.

        If several threads need the same kernels, only one thread compiles them.
        """
        with self.kept.lock:
            target = target_of(call.device)
            special = self.is_special(call, target)
            context = program.context(call, target, special)
            if not special and program.start is None:
                context = replace(context, sizes=self.unchanged(call))
            tuned = special and program.effort != "none" and target.kind != "interpreter"

            def build(options: Options) -> Executable:
                return run_stage.launchable(program.compilation(with_measured(context, options)), context.target)

            def make() -> Executable:
                if not tuned:
                    return build(context.options)
                from minitri.runtime.tuning_policy import chosen

                return chosen(program, call, context, build)

            return self.kept.made(context.key, make)

    def is_special(self, call: Call, target: Target) -> bool:
        """Checks whether the kernels for a call are compiled for exactly the sizes of this call."""
        if target.kind == "interpreter":
            return True
        shape = (tuple(call.sizes.items()), tuple((n, a.strides) for n, a in call.arrays.items()))
        if shape not in self.shapes and len(self.shapes) >= MAX_SPECIALISED:
            return False
        self.shapes.add(shape)
        return True

    def unchanged(self, call: Call) -> dict[str, int]:
        """Returns the sizes that are the same in this call and in all recorded `shapes`. Sizes that never changed are
        constants in a general kernel (a kernel for many shapes). All other sizes are arguments of the general kernel.
        """
        seen = [dict(sizes) for sizes, _ in self.shapes]
        return {n: size for n, size in call.sizes.items() if all(s.get(n) == size for s in seen)}
