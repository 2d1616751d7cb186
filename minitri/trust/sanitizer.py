"""The sanitizer: checks the accesses of a tile program while it is evaluated, and reports errors.

The class `Watch` checks every load and store that the evaluator runs. If an access is wrong, `Watch` raises an
`AccessError`. The field `kind` of the `AccessError` says what is wrong:

`out of bounds`: no mask stops an access that leaves its array.
`not written`: a load reads an element before any store writes this element.
`written twice`: grid programs write the same element more than once.
`never written`: no grid program writes an element of an output.
`layout`: the shape and strides of a buffer differ from the shape and strides of the array.
`race`: a grid program reads an element that a different grid program of the same kernel writes.
`not neutral`: an element past the end of a reduced axis has a value that would change the result of the reduction.

An `AccessError` names the tile program, the point of the grid, the buffer and the index. An `AccessError` also shows
the statement as the stage prints it, and the source text of that statement. The sanitizer does not check whether the
values of the elements are right; minitri/trust/check_passes.py does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from minitri.base import operators
from minitri.base.diagnostics import Span, excerpt
from minitri.base.dims import Symbol
from minitri.kernels.evaluate import Memory
from minitri.kernels.ir import Buffer, Dot, Load, Op, Plan, Reduce, Scan, Store, children
from minitri.tiles.ir import Program
from minitri.tiles.text import statements


@dataclass(eq=False)
class AccessError(Exception):
    """The error for a forbidden access to memory, with the grid program and the statement that accessed the memory."""

    kind: str
    problem: str
    program: str = ""
    place: tuple[int, ...] | None = None
    statement: str = ""
    span: Span | None = None
    buffer: str = ""
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        at = f", program {_tuple(self.place)}" if self.place is not None else ""
        first = f"{self.program}{at}: {self.problem}" if self.program else self.problem
        statement = [f"  {self.statement}"] if self.statement else []
        return "\n".join([first, *statement, *(excerpt(self.span) if self.span else [])])


def _tuple(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"


def element(buffer: Buffer, index: Sequence[int]) -> str:
    return f"{buffer.name}{list(index)}"


class Watch:
    """Checks every access while all tile programs of a plan run.

    `runs`: all grid programs that have begun, each with the name of the kernel and the position in the grid.
    `writers`: for each element of a temporary or output, the position in `runs` of the grid program that wrote it. -1
        if nothing wrote the element.
    `readers`: for each element of an array, the number of the last run (grid program) that read the element. `readers`
        has only arrays that the current kernel both reads and writes.
    """

    def __init__(
        self, plan: Plan, programs: Sequence[Program], memory: Mapping[str, Memory], sizes: Mapping[str, int]
    ) -> None:
        self.plan, self.programs, self.memory, self.sizes = plan, programs, memory, sizes
        self.known = {b.name: b for b in (*plan.inputs, *plan.temporaries, *plan.outputs)}
        self.writers = {b.name: np.full(memory[b.name].flat.size, -1) for b in (*plan.temporaries, *plan.outputs)}
        self.readers: dict[str, Any] = {}
        self.runs: list[tuple[str, tuple[int, ...]]] = []
        self.first_run = 0  # the number of the first program of this kernel
        self.shapes: dict[Buffer, tuple[int, ...]] = {}
        self.program: Program | None = None

    def enter(self, program: Program, place: tuple[int, ...]) -> None:
        """Records the start of the grid program at the grid position `place`. Accesses belong to the grid program for
        which `enter` was last called.
        """
        if program is not self.program:
            loaded = {op.buffer.name for op in program.ops() if isinstance(op, Load)}
            stored = {op.buffer.name for op in program.ops() if isinstance(op, Store)}
            self.readers = {n: np.full_like(self.writers[n], -1) for n in loaded & stored & set(self.writers)}
            self.first_run = len(self.runs)
        self.program = program
        self.runs.append((program.name, tuple(map(int, place))))

    @property
    def run(self) -> int:
        """The position of the current grid program in `runs`: the number of grid programs that started before it."""
        return len(self.runs) - 1

    # ---- accesses --------------------------------------------------------------------

    def bounds(self, op: Load | Store, index: Sequence[Any], inside: Any) -> None:
        """Checks that the index of each element is inside the array, except for elements that the mask stops."""
        for i, extent in zip(index, self._shape(op)):
            outside = (i < 0) | (i >= extent)
            if outside.any() and (outside & inside).any():
                wrong, *index = np.broadcast_arrays(outside & inside, *index)
                found = tuple(int(i[wrong][0]) for i in index)  # the first wrong element
                does = "reads" if isinstance(op, Load) else "writes"
                problem = f"{does} {element(op.buffer, found)}, out of bounds: its shape is {list(self._shape(op))}"
                raise self._error("out of bounds", problem, op, found)

    def load(self, op: Load, offset: Any, inside: Any) -> None:
        """Checks that every loaded element of a temporary or output was written before the load. It is an error if
        another grid program of the same kernel has written a loaded element.
        """
        writer = self.writers.get(op.buffer.name)
        if writer is None:
            return
        shape = np.broadcast_shapes(offset.shape, inside.shape)
        places = np.broadcast_to(offset, shape)[np.broadcast_to(inside, shape)]
        unwritten = writer[places] < 0
        if unwritten.any():
            at = self._index(op.buffer, places[unwritten][0])
            raise self._error("not written", f"reads {element(op.buffer, at)}, which nothing has written yet", op, at)
        if op.buffer.name in self.readers:
            by = writer[places]
            self._race(op, places[(by >= self.first_run) & (by != self.run)], "reads", "writes")
            self.readers[op.buffer.name][places] = self.run

    def store(self, op: Store, offset: Any) -> None:
        """Checks that no grid program has written the stored elements before, and that no other grid program of the
        same kernel has read the stored elements.
        """
        writer, reader = self.writers.get(op.buffer.name), self.readers.get(op.buffer.name)
        if writer is None:
            raise self._error("out of bounds", f"writes {op.buffer.name}, which is an input", op, ())
        self._twice(op, offset, writer[offset] >= 0)
        if reader is not None:
            self._race(op, offset[(reader[offset] >= 0) & (reader[offset] != self.run)], "writes", "reads")
        numbers = np.arange(offset.size)
        writer[offset] = numbers  # for two elements with the same offset, stores the second number
        again = writer[offset] != numbers
        writer[offset] = self.run
        self._twice(op, offset, again)

    def past_end(self, op: Op, axis: str, elements: Any, before: Any = None) -> None:
        """Checks that elements past the end of a reduced axis do not change the reduction.

        The accumulator of a loop has the value `before` before an iteration, and the value `elements` after the
        iteration. The values `before` and `elements` must be equal. If `before` is None, all `elements` must be neutral
        for the reduction, for example 0 for a sum.
        """
        neutral = operators.neutral(op.op, op.x.dtype) if isinstance(op, (Reduce, Scan)) else 0
        wanted = np.asarray(neutral, elements.dtype) if before is None else before
        bad = ~((elements == wanted) | ((elements != elements) & (wanted != wanted)))
        if bad.any():
            value = elements[bad][0]
            problem = f"a lane past the end of {axis} is {value}, which would change {_result(op)}"
            raise self._error("not neutral", problem, op, ())

    def done(self, op: Op, values: Mapping[Op, Any], env: Mapping[Symbol, Any], real: Mapping[str, int]) -> None:
        """A hook that does nothing. The evaluator calls the hook after each op, so that a subclass can look at the
        computed values.

        `env` maps each axis to the indices that the current tile covers. `real[axis]` is the number of indices of the
        current tile that are not past the end of the axis.
        """

    def finish(self) -> None:
        """Checks that every element of every output has been written."""
        for b in self.plan.outputs:
            missing = self.writers[b.name] < 0
            if missing.any():
                at = self._index(b, np.argmax(missing))
                problem = f"{element(b, at)} is never written"
                stores = ((p, op) for p in self.programs for op in p.ops() if isinstance(op, Store))
                own = [(p, op) for p, op in stores if op.buffer.name == b.name]
                if not own:
                    raise AccessError("never written", f"{problem}: nothing stores it", buffer=b.name, index=at)
                p, op = own[-1]
                raise AccessError("never written", problem, p.name, None, statements(p)[op], _span(p, op), b.name, at)

    # ---- parts -----------------------------------------------------------------------

    def _shape(self, op: Load | Store) -> tuple[int, ...]:
        """Returns the shape of the buffer that an op accesses."""
        buffer = op.buffer
        if buffer not in self.shapes:
            known = self.known[buffer.name]
            # the layout that the op assumes differs from the layout of the array in memory
            if not np.array_equal(np.sort(self._places(buffer)), np.sort(self._places(known))):
                raise self._error("layout", f"takes {buffer} for {known}", op, ())
            self.shapes[buffer] = buffer.layout(self.sizes)[0]
        return self.shapes[buffer]

    def _places(self, buffer: Buffer) -> Any:
        """Returns the memory offset of each element, in row-major order."""
        steps = [stride * np.arange(n) for n, stride in zip(*buffer.layout(self.sizes))]
        return np.ravel(reduce(np.add.outer, steps, 0))

    def _twice(self, op: Store, offset: Any, again: Any) -> None:
        """Raises AccessError if a store writes an element a second time."""
        if again.any():
            at = self._index(op.buffer, offset[again][0])  # the first such element
            name, place = self.runs[self.writers[op.buffer.name][offset[again][0]]]
            problem = f"writes {element(op.buffer, at)} twice: {name}, program {_tuple(place)}, has written it"
            raise self._error("written twice", problem, op, at)

    def _race(self, op: Load | Store, others: Any, does: str, did: str) -> None:
        """Raises AccessError if one grid program reads an element that a different grid program writes."""
        # the order of the read and the write is not defined
        if others.size:
            at = self._index(op.buffer, others[0])
            problem = f"{does} {element(op.buffer, at)}, which another program of {self.runs[-1][0]} {did}"
            raise self._error("race", problem, op, at)

    def _index(self, buffer: Buffer, offset: Any) -> tuple[int, ...]:
        known = self.known[buffer.name]
        at = np.flatnonzero(self._places(known) == offset)[0]
        return tuple(map(int, np.unravel_index(at, known.layout(self.sizes)[0])))

    def _error(self, kind: str, problem: str, op: Op, index: tuple[int, ...]) -> AccessError:
        assert self.program is not None
        buffer, statement = op.buffer.name if isinstance(op, (Load, Store)) else "", statements(self.program)[op]
        return AccessError(kind, problem, *self.runs[-1], statement, _span(self.program, op), buffer, index)


def _span(program: Program, op: Op) -> Span | None:
    """Returns the source text that an op comes from."""
    if op.spans and op.spans[0].text.startswith("%"):
        return op.spans[0]  # the line of the op in the text of a stage, from which the program was loaded
    # a load's own text is only the type of a parameter, such as `f32[M, N]`, so take the op that uses the load
    user = next((o for o in program.ops() if op in children(o)), op) if isinstance(op, Load) else op
    return next(iter(user.spans or op.spans), None)


def _result(op: Op) -> str:
    if isinstance(op, (Reduce, Scan)):
        return f"the {op.op}"
    return "the product" if isinstance(op, Dot) else "what the loop carries"
