"""The table of schedule rules. A kernel gets the schedule of the first rule that returns a schedule.

    schedule(kernel, Request(chip))                                     with all rules
    schedule(kernel, Request(chip), without={"reduction-schedules"})    reductions get the plain schedule

A schedule rule is a function of a kernel and a `Request`, which has further arguments such as the chip. A rule returns
None if it does not apply to the kernel. If no rule applies, the kernel gets the plain schedule of
minitri/tiles/schedule.py. To add a schedule rule, write a function and add a row to the table `RULES`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from minitri.kernels.ir import Kernel
from minitri.optimize.schedules.attention import attention
from minitri.optimize.schedules.elementwise import elementwise
from minitri.optimize.schedules.products import product, with_descriptor_stores
from minitri.optimize.schedules.reductions import reduction
from minitri.optimize.schedules.rule_arguments import Request
from minitri.tiles.schedule import INTERPRETER, Schedule, plain, with_options


def interpreter(kernel: Kernel, request: Request) -> Schedule | None:
    """Gives reductions and products very large tiles in Triton's interpreter, so that few grid programs run.

    In the interpreter, each grid program takes about a millisecond, whatever the size of its tile. Another rule gives
    elementwise kernels large tiles.
    """
    if not request.interpreter or not kernel.reduced:
        return None
    chosen = plain(kernel, INTERPRETER)
    return replace(chosen, group=8) if kernel.dots and not kernel.held else chosen


RULES: Mapping[str, Callable[[Kernel, Request], Schedule | None]] = {
    "elementwise-schedules": elementwise,
    "interpreter-schedules": interpreter,
    "attention-schedules": attention,
    "product-schedules": product,
    "reduction-schedules": reduction,
}


def schedule(kernel: Kernel, request: Request, without: Collection[str] = ()) -> Schedule:
    """Returns the schedule of the first rule that applies, or the plain schedule if no rule applies. The caller's
    options override fields of the schedule.
    """
    answers = (rule(kernel, request) for name, rule in RULES.items() if name not in without)
    chosen = next((answer for answer in answers if answer is not None), None) or plain(kernel)
    return with_descriptor_stores(kernel, with_options(kernel, chosen, request.options), request.chip)
