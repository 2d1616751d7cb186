"""A failure as one file: the program, and in comments everything that is needed to repeat the failure.

    # minitri fuzz --replay seed-17-mask.mt
    # the pass `mask` is wrong (tile.masked, cuda): 1 of 3 elements, the worst at [2]
    # case {"relation": "", "guilty": "mask", "seed": 17, "sizes": {"N": 3}, "arguments": …}
    def program(x: f32[N]):
        return sum(x)

In: a `Case`. Out: the text of a file. The function `read` makes the same `Case` from the text of the file. The file is
a module of the language, so every other command of minitri accepts the file too. If the arguments have few elements,
the file holds every element and the strides. If the arguments have many elements, the file has only the seed, from
which `read` makes the same arguments again. Left out: running the case (trial.py).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.types import BY_NUMPY_NAME, DTYPES
from minitri.runtime.array_interop import strided
from minitri.testing import Parameter, RandomProgram

MARK = "# case "
MOST = 4096  # the most elements of arguments in a file


@dataclass(frozen=True)
class Case:
    """A program, its arguments, and the failure that was found.

    relation   a key of testing.equivalent_programs.RELATIONS; "" if `check` found the failure
    variant    the variant (minitri/trust/check_passes.py) for which `check` found the failure
    said       the message that describes the failure
    """

    program: RandomProgram
    seed: int
    relation: str = ""
    guilty: str = ""
    variant: str = ""
    said: str = ""
    arguments: Sequence[Any] | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """The kind of the failure, such as the name of the wrong pass, as it stands in the name of a file."""
        return (self.relation or self.guilty).replace(": ", "-").replace(" ", "-")

    @property
    def file(self) -> str:
        """The name of the file for this case."""
        return f"seed-{self.seed}-{self.kind}.mt"

    @property
    def values(self) -> list[Any]:
        return self.program.arguments(self.seed) if self.arguments is None else list(self.arguments)


def written(case: Case, name: str) -> str:
    header = {
        "relation": case.relation, "guilty": case.guilty, "variant": case.variant, "seed": case.seed, "sizes": case.program.sizes,
        "parameters": [[p.name, p.type, p.low, p.high] for p in case.program.parameters],
        "arguments": _listed(case.arguments),
    }  # fmt: skip
    said = [f"# {line}".rstrip() for line in case.said.splitlines()]
    return "\n".join([f"# minitri fuzz --replay {name}", *said, MARK + json.dumps(header), case.program.text])


def read(text: str) -> Case:
    """Returns the case in the text of a file that the function `written` made.

    Raises CompileError MT0003 if the text was not made by `written`.
    """
    lines = text.splitlines(keepends=True)
    try:
        header = json.loads(next(line for line in lines if line.startswith(MARK)).removeprefix(MARK))
        parameters = tuple(Parameter(str(n), str(t), float(a), float(b)) for n, t, a, b in header["parameters"])
        sizes = {str(n): int(s) for n, s in header["sizes"].items()}
        arguments = header["arguments"] and [_array(a) for a in header["arguments"]]
        said = "".join(line[2:] for line in lines[1:] if line.startswith("# ") and not line.startswith(MARK))
        program = RandomProgram("".join(line for line in lines if not line.startswith("#")), parameters, sizes)
        relation, guilty, variant = (str(header[name]) for name in ("relation", "guilty", "variant"))
        return Case(program, int(header["seed"]), relation, guilty, variant, said, arguments)
    except (StopIteration, ValueError, KeyError, TypeError, AttributeError):
        message = "this is no file that `minitri fuzz` has written"
        raise CompileError("MT0003", message, help="such a file has a line `# case {...}`") from None


def _listed(arguments: Sequence[Any] | None) -> list[Any] | None:
    """Returns the arguments as data for JSON, or None if the arguments have more than `MOST` elements in all."""
    if arguments is None or sum(np.size(a) for a in arguments) > MOST:
        return None
    return [_plain(a) for a in arguments]


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return float(value)
    dtype = BY_NUMPY_NAME[value.dtype.name]
    wide = value.astype(np.float64) if dtype.is_float else value  # f64 holds every float dtype exactly
    strides, elements = [s // value.dtype.itemsize for s in value.strides], wide.reshape(-1).tolist()
    return {"dtype": dtype.name, "shape": list(value.shape), "strides": strides, "values": elements}


def _array(given: Any) -> Any:
    """Returns the argument that `_plain` turned into data: a number, or an array with the strides that it had."""
    if not isinstance(given, Mapping):
        return float(given)
    dtype, shape, strides = DTYPES[given["dtype"]], tuple(map(int, given["shape"])), tuple(map(int, given["strides"]))
    plain = np.array(given["values"], np.float64 if dtype.is_float else None).reshape(shape).astype(dtype.numpy)
    if 0 in shape or sum((n - 1) * abs(s) for n, s in zip(shape, strides)) > 64 * (MOST + math.prod(shape)):
        return plain
    array = strided(shape, strides, dtype.numpy)
    array[...] = plain
    return array
