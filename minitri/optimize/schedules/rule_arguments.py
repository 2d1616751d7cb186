"""The arguments that a schedule rule has in addition to the kernel."""

from minitri.base.nodes import Record
from minitri.hardware.chips import Chip
from minitri.tiles.schedule import Options


class Request(Record):
    """The request for a schedule: the chip, whether Triton's interpreter runs the kernel, and the caller's options."""

    chip: Chip
    interpreter: bool = False
    options: Options = Options()
