"""The sanitizer: checks the accesses of a tile program while it is evaluated, and reports errors.

In: each access of each element of a tile, when the evaluator makes it. Out: nothing, or an `AccessError` of one of
these kinds:

    out of bounds   an access that no mask stops and that leaves its array
    not written     a read of an element that nothing has written yet
    written twice   an element that is written a second time, by any program
    never written   an element of an output that no program writes
    layout          a buffer whose shape and strides differ from the shape and strides of the array
    race            a program reads an element that another program of the same kernel writes
    not neutral     an element past the end of a reduced axis that would change the reduction

The error names the program, its place in the grid, the buffer and the index. It shows the statement as the stage
prints it, and the source text of that statement. Left out: whether the values of elements are right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitri.base import operators
from minitri.base.diagnostics import Span, excerpt
from minitri.base.dims import Dim, Symbol
from minitri.kernels.evaluate import Memory
from minitri.kernels.ir import Buffer, Dot, Load, Op, Plan, Reduce, Scan, Store, op_operands
from minitri.tiles.ir import Program
from minitri.tiles.text import statements


@dataclass(eq=False)
class AccessError(Exception):
    """An access that a program must not make, and where it happened."""

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
        lines = [f"{self.program}{at}: {self.problem}" if self.program else self.problem]
        lines += [f"  {self.statement}"] if self.statement else []
        return "\n".join(lines + (excerpt(self.span) if self.span else []))


def _tuple(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"


def element(buffer: Buffer, index: Sequence[int]) -> str:
    return f"{buffer.name}[{', '.join(map(str, index))}]"


@dataclass(slots=True)
class Record:
    """For each element of a buffer its last writer and, if needed, its last reader; -1 means none."""

    buffer: Buffer
    writer: Any  # a number that counts stored elements: which one wrote this element
    starts: list[int] = field(default_factory=list)  # the first such number of each store
    places: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    count: int = 0
    reader: Any = None  # the run of a program that read the element last

    def by(self, offset: int) -> tuple[str, tuple[int, ...]]:
        """The program that wrote the element at `offset`, and its place in the grid."""
        return self.places[bisect_right(self.starts, int(self.writer[offset])) - 1]


class Watch:
    """Checks every access while all programs of a plan run."""

    def __init__(
        self, plan: Plan, programs: Sequence[Program], memory: Mapping[str, Memory], sizes: Mapping[str, int]
    ) -> None:
        self.plan, self.programs, self.memory, self.sizes = plan, programs, memory, sizes
        written = (*plan.temporaries, *plan.outputs)
        self.records = {b.name: Record(b, np.full(memory[b.name].flat.size, -1)) for b in written}
        self.known = {b.name: b for b in (*plan.inputs, *written)}
        self.shapes: dict[Buffer, tuple[int, ...]] = {}
        self.program: Program | None = None
        self.place: tuple[int, ...] = ()
        self.run = 0
        self.begun = {name: 0 for name in self.records}  # how many elements were stored before this kernel
        self.shared: set[str] = set()  # buffers that this kernel both reads and writes

    def enter(self, program: Program, place: tuple[int, ...]) -> None:
        """Starts a program: the following accesses belong to it."""
        if program is not self.program:
            stored = {op.buffer.name for op in program.ops() if isinstance(op, Store)}
            self.shared = stored & {op.buffer.name for op in program.ops() if isinstance(op, Load)} & set(self.records)
            self.begun = {name: r.count for name, r in self.records.items()}
            for name in self.shared:
                self.records[name].reader = np.full(self.memory[name].flat.size, -1)
        self.program, self.place = program, tuple(map(int, place))
        self.run += 1

    # ---- accesses --------------------------------------------------------------------

    def bounds(self, op: Load | Store, index: Sequence[Any], inside: Any) -> None:
        """Checks that the index is inside the array for every element that the mask lets through."""
        for i, extent in zip(index, self._shape(op)):
            outside = (i < 0) | (i >= extent)
            if outside.any() and (outside & inside).any():
                found = self._lane(outside & inside, index)
                does = "reads" if isinstance(op, Load) else "writes"
                shape = ", ".join(map(str, self._shape(op)))
                problem = f"{does} {element(op.buffer, found)}, out of bounds: its shape is [{shape}]"
                raise self._error("out of bounds", problem, op, found)

    def load(self, op: Load, offset: Any, inside: Any) -> None:
        """Checks that loaded elements have been written, and that no other program of this kernel wrote them."""
        record = self.records.get(op.buffer.name)
        if record is None:
            return
        shape = np.broadcast_shapes(offset.shape, inside.shape)
        lanes = np.broadcast_to(offset, shape)[np.broadcast_to(inside, shape)]
        unwritten = record.writer[lanes] < 0
        if unwritten.any():
            at = self._index(op.buffer, int(lanes[unwritten][0]))
            raise self._error("not written", f"reads {element(op.buffer, at)}, which nothing has written yet", op, at)
        if op.buffer.name in self.shared:
            self._race(op, record, lanes)

    def store(self, op: Store, offset: Any) -> None:
        """Checks that the elements have not been written before, and that no other program of this kernel reads
        them.
        """
        record = self.records.get(op.buffer.name)
        if record is None:
            raise self._error("out of bounds", f"writes {op.buffer.name}, which is an input", op, ())
        before = record.writer[offset] >= 0
        if before.any():
            self._twice(op, record, int(offset[before][0]), record.by(int(offset[before][0])))
        if op.buffer.name in self.shared:
            self._race(op, record, offset)
        numbers = record.count + np.arange(offset.size)
        record.writer[offset] = numbers
        again = record.writer[offset] != numbers
        assert self.program is not None
        if again.any():
            self._twice(op, record, int(offset[again][0]), (self.program.name, self.place))
        record.starts.append(record.count)
        record.places.append((self.program.name, self.place))
        record.count += offset.size

    def past_end(self, op: Op, axis: str, lanes: Any, before: Any = None) -> None:
        """Checks that elements past the end of a reduced axis do not change the reduction.

        `before` is the value that a loop carries into this iteration, if any. These elements must not change it
        either.
        """
        neutral = operators.neutral(op.op, op.x.dtype) if isinstance(op, (Reduce, Scan)) else 0
        wanted = np.asarray(neutral, lanes.dtype) if before is None else before
        with np.errstate(all="ignore"):
            bad = ~((lanes == wanted) | ((lanes != lanes) & (wanted != wanted)))
        if bad.any():
            value = lanes[bad][0]
            problem = f"a lane past the end of {axis} is {value}, which would change {_result(op)}"
            raise self._error("not neutral", problem, op, ())

    def done(self, op: Op, values: Mapping[Op, Any], env: Mapping[Symbol, Any], real: Mapping[str, int]) -> None:
        """Does nothing. The evaluator calls it after each op, so that a subclass can look at values.

        `env` has the present indices of all axes. `real` has, for each axis, how many of them are inside the axis.
        """

    def finish(self) -> None:
        """Checks that every element of every output has been written."""
        for b in self.plan.outputs:
            record = self.records[b.name]
            if record.count < record.writer.size:
                at = self._index(b, int(np.argmin(record.writer)))
                stores = [
                    (p, o) for p in self.programs for o in p.ops() if isinstance(o, Store) and o.buffer.name == b.name
                ]
                problem = f"{element(b, at)} is never written"
                if not stores:
                    raise AccessError("never written", f"{problem}: nothing stores it", buffer=b.name, index=at)
                p, op = stores[-1]
                raise AccessError("never written", problem, p.name, None, statements(p)[op], _span(p, op), b.name, at)

    # ---- parts -----------------------------------------------------------------------

    def _shape(self, op: Load | Store) -> tuple[int, ...]:
        """The shape of the buffer that an op accesses. AccessError if its layout is not the array's."""
        buffer = op.buffer
        if buffer not in self.shapes:
            if not np.array_equal(self._places(buffer), self._places(self.known[buffer.name])):
                problem = f"takes {buffer} for {self.known[buffer.name]}"
                raise self._error("layout", problem, op, ())
            self.shapes[buffer] = self._sizes(buffer.shape)
        return self.shapes[buffer]

    def _sizes(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(d.evaluate(self.sizes) for d in dims)

    def _places(self, buffer: Buffer) -> Any:
        """The offset of each element in memory, in row-major order."""
        place: Any = np.zeros(1, np.int64)
        for n, stride in zip(self._sizes(buffer.shape), self._sizes(buffer.strides)):
            place = (place[:, None] + stride * np.arange(n)).reshape(-1)
        return place

    def _twice(self, op: Store, record: Record, offset: int, writer: tuple[str, tuple[int, ...]]) -> None:
        at = self._index(record.buffer, offset)
        problem = f"writes {element(op.buffer, at)} twice: {writer[0]}, program {_tuple(writer[1])}, has written it"
        raise self._error("written twice", problem, op, at)

    def _race(self, op: Load | Store, record: Record, offset: Any) -> None:
        """Reports an element that one program reads and another program of the same kernel writes: their order is
        not defined.
        """
        assert self.program is not None
        if isinstance(op, Load):
            new = offset[record.writer[offset] >= self.begun[op.buffer.name]]
            others = [o for o in new.tolist() if record.by(o) != (self.program.name, self.place)]
            record.reader[offset] = self.run
        else:
            others = offset[(record.reader[offset] >= 0) & (record.reader[offset] != self.run)].tolist()
        if others:
            at = self._index(record.buffer, others[0])
            verbs = ("reads", "writes") if isinstance(op, Load) else ("writes", "reads")
            problem = f"{verbs[0]} {element(op.buffer, at)}, which another program of {self.program.name} {verbs[1]}"
            raise self._error("race", problem, op, at)

    def _lane(self, wrong: Any, index: Sequence[Any]) -> tuple[int, ...]:
        """The index of the first wrong element."""
        wrong, *index = np.broadcast_arrays(wrong, *index)
        lane = tuple(np.argwhere(wrong)[0])
        return tuple(int(i[lane]) for i in index)

    def _index(self, buffer: Buffer, offset: int) -> tuple[int, ...]:
        shape = self._sizes(buffer.shape)
        return tuple(map(int, np.unravel_index(offset, shape))) if shape else ()

    def _error(self, kind: str, problem: str, op: Op, index: tuple[int, ...]) -> AccessError:
        assert self.program is not None
        buffer = op.buffer.name if isinstance(op, (Load, Store)) else ""
        at = (self.program.name, self.place)
        return AccessError(kind, problem, *at, statements(self.program)[op], _span(self.program, op), buffer, index)


def _span(program: Program, op: Op) -> Span | None:
    """The source text that an op comes from, or the op's own line if the program was loaded from the text of a
    stage.

    For a load it is the text of the op that uses the load, because the load's own text is the type of a parameter.
    """
    if op.spans and op.spans[0].text.startswith("%"):
        return op.spans[0]
    user = next((o for o in program.ops() if op in op_operands(o)), op) if isinstance(op, Load) else op
    return next(iter(user.spans or op.spans), None)


def _result(op: Op) -> str:
    if isinstance(op, (Reduce, Scan)):
        return f"the {op.op}"
    return "the product" if isinstance(op, Dot) else "what the loop carries"
