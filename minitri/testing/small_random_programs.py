"""Makes random programs for tests. The random programs have statements of all kinds. The arrays are small, of any dtype
and rank, and have awkward sizes such as 0 and 17.

The function `written` takes a `Tape`, which makes the random choices. The returned `RandomProgram` is valid by
construction.

    def program(x: f16[N, M], y: i8[1, M]):
        v1 = cumulative_sum(x, axis=0)
        v2 = where(v1 > y, v1, 0)
        return v2, v1

A form is a statement with placeholders, such as `{x} + {y}` (statement_forms.toml). The file statement_placeholders.py
fills a form: it replaces each placeholder, such as `{x}`, by the name of a value, axis or size. The reference evaluator
computes each statement for sample arrays, as soon as the statement is written. The writer of random programs then knows
the dtype, the shape and the elements of the statement's result. A statement that the reference evaluator accepts stays
in the program. If the compiler rejects a statement that the reference evaluator accepts, the compiler has a bug.

In the language, an axis of size 1 broadcasts only if its size is written as 1, not as N. The reference evaluator does
not check how a size is written. If a statement reads an array with an axis of size 0 or 1, the compiler also checks the
shapes. If the shapes do not fit, the statement is left out.

A `Tape` makes the random choices, and records them as numbers. The function `smaller` removes or decreases numbers in a
list of choices, as long as the resulting program still fails. The idea of this search comes from the library
hypothesis: the search shrinks the list of choices, not the program. Each list of choices, recorded or shortened, gives
a valid program. The file minitri/trust/shrink_arguments.py shrinks arrays.
"""

import math
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.nodes import Record
from minitri.base.toml_tables import table_beside
from minitri.base.types import BY_NUMPY_NAME, DTYPES
from minitri.language import ast
from minitri.language.parser import parse_module
from minitri.language.reference_evaluator import evaluate
from minitri.program import Program
from minitri.testing.random_arrays import random_array
from minitri.testing.statement_placeholders import DTYPE_CHOICES, MAX_ELEMENTS, SIDES, FormFiller, Parameter, Value
from minitri.testing.statement_writer import DoesNotFit, refuse_if, words

TABLE = table_beside(__file__, "statement_forms.toml")
TRIES = 3  # how many forms of one kind are tried
SHAPE_ERRORS = ("MT0201", "MT0203", "MT0204", "MT0205", "MT0206", "MT0304")
HELPERS: dict[str, str] = TABLE["helpers"]
HELPER_FUNCTIONS = parse_module("\n\n".join(HELPERS.values()), "<helpers>").functions


class RandomProgram(Record):
    """A random program: the text of its module, and a number for each of its dimensions. The program is the module's
    last function, `program`.
    """

    text: str
    parameters: tuple[Parameter, ...]
    sizes: dict[str, int]

    def __repr__(self) -> str:
        return f"{self.text}# {', '.join(f'{n} = {s}' for n, s in self.sizes.items())}"

    def compile(self, **options: Any) -> Program:
        return Program(parse_module(self.text, "<random>"), **options)

    def arguments(self, seed: int = 0) -> list[Any]:
        """Returns random arrays and numbers for the parameters, in any memory layout.

        Some arrays contain special values such as NaN.
        """
        rng = np.random.default_rng(seed)
        return [random_array(p.type, self.sizes, rng, p.low, p.high) for p in self.parameters]


class SmallWriter(FormFiller):
    """Writes a random program, statement by statement.

    If `kinds` is given, only statements of these kinds are written. The file statement_forms.toml has the names of the
    kinds of statements.
    """

    refusals = (DoesNotFit, LookupError, ValueError)

    def __init__(self, choose: Callable[[Sequence[Any]], Any], kinds: Sequence[str] = (), sides: Sequence[int] = SIDES):
        super().__init__(TABLE, choose, sides)
        self.focused = bool(kinds)
        self.tried = list(kinds) or [name for name, row in self.kinds.items() for _ in range(row.get("weight", 1))]

    def program(self, ops: int) -> RandomProgram:
        for _ in range(self.choose((1, 2))):
            self.array(self.choose((*DTYPE_CHOICES, "f32", "f32", "i32")), self.new_axes())
        for _ in range(ops):
            start = self.choose(range(len(self.tried)))
            any(map(self.adds, self.tried[start:] + self.tried[:start]))  # up to the first that fits
        if not self.focused and self.chance(3):
            self.adds("masked_reduction")
        return self._finished()

    def adds(self, kind: str) -> bool:
        """Adds a statement of the given kind. Returns whether a statement was added.

        Tries at most `TRIES` random forms of the given kind, and takes the first form whose placeholders can all be
        filled. A form is the text of a statement with placeholders, such as {x}.
        """
        return any(self.attempt(kind, self.operand(self.kinds[kind])) for _ in range(TRIES))

    # ---- values ------------------------------------------------------------------------------

    def operand(self, kind: Mapping[str, Any]) -> str:
        """Returns the name of a value that can replace the placeholder {x} in a statement of the given kind. If no
        value of the program can replace {x}, the method adds a new array parameter to the program and returns its name.
        """
        of, rank = kind.get("of", "fiub"), kind.get("rank", 0)
        most, size = kind.get("most", math.inf), kind.get("elements", math.inf)
        dtypes = [d for d in DTYPE_CHOICES if DTYPES[d].kind in of]

        def suits(v: Value) -> bool:
            small = v.dtype.kind != "f" or v.largest <= most
            return v.dtype.kind in of and len(v.shape) >= rank and small and math.prod(v.shape) <= size

        found = self.found(suits)
        return found or self.array(self.choose([*dtypes[:1] * 8, *dtypes]), [self.new_axis(130) for _ in range(rank)])

    def value(self, text: str, reads: Sequence[str], group: str) -> Value:
        operands = [self.values[n] for n in reads]
        exact = all(v.exact for v in operands)
        refuse_if("jumps" in group and not exact)
        try:
            module = _parsed(f"def f({', '.join(reads)}):\n    return {text}\n")
            data = evaluate(module, "f", {n: self.values[n].data for n in reads}, self.sizes)[0]
        except CompileError:
            raise DoesNotFit from None
        dtype = BY_NUMPY_NAME[data.dtype.name]
        made = Value(data, dtype, not dtype.is_float or exact and "rounded" not in group)
        overflows = made.overflows and "inf" not in text and not any(v.overflows for v in operands)
        limit = 2e4 if dtype.name == "f16" else 1e12 if dtype.is_float else math.inf
        refuse_if(overflows or made.largest > limit or data.size > MAX_ELEMENTS or data.ndim > 5)
        refuse_if(any(0 in v.shape or 1 in v.shape for v in operands) and not self._shapes_fit(text))
        return made

    def _shapes_fit(self, text: str) -> bool:
        """Checks whether the compiler accepts the shapes of a statement."""
        program = self._written({s.name: s.text for s in self.statements} | {"end": text}, ["end"])
        try:
            with warnings.catch_warnings(action="ignore"):  # the warning that two dimensions must be equal
                program.compile(without=("all",)).run("graph", *(self.values[p.name].data for p in program.parameters))
        except CompileError as error:
            return error.code not in SHAPE_ERRORS
        return True

    # ---- the whole text ----------------------------------------------------------------------

    def _finished(self) -> RandomProgram:
        made = [s.name for s in self.statements] or list(self.arrays)[:1]
        ends = [s.name for s in self.ends()]
        more = [self.choose([*ends[::-1], *made]) for _ in range(self.choose((0, 0, 1, 2)))]
        results = list(dict.fromkeys([made[-1], *more]))
        return self._written(self._inlined({s.name: s.text for s in self.needed(results)}, results), results)

    def _written(self, lines: Mapping[str, str], results: Sequence[str]) -> RandomProgram:
        """Returns the program whose body consists of the given statements."""
        body = [f"{name} = {text}" for name, text in lines.items()] + [f"return {', '.join(results)}"]
        used = set(words("\n".join(body)))
        taken = [p for n, p in self.arrays.items() if n in used]  # parameters that the statements read
        for p in self.arrays.values():  # parameters whose types name dimensions that the body uses
            missing = (used & self.sizes.keys()).difference(*(words(q.type) for q in taken))
            if p not in taken and missing.intersection(words(p.type)):
                taken.append(p)
        taken.sort(key=lambda p: p.type == "float")
        sizes = {n: s for n, s in self.sizes.items() if any(n in words(p.type) for p in taken)}
        text = "".join(f"{helper}\n\n" for name, helper in HELPERS.items() if name in used)
        text += f"def program({', '.join(f'{p.name}: {p.type}' for p in taken)}):\n"
        return RandomProgram(text + "".join(f"    {line}\n" for line in body), tuple(taken), sizes)

    def _inlined(self, lines: dict[str, str], results: Sequence[str]) -> dict[str, str]:
        """Returns the statements after inlining some variables that are used only once."""
        for name in list(lines):
            readers = [n for n, text in lines.items() if name in words(text)]
            once = len(readers) == 1 and words(lines[readers[0]]).count(name) == 1
            if once and name not in results and self.chance(3):
                text = f"({lines.pop(name)})"
                # `v1 = a + b` and `v2 = exp(v1)` become `v2 = exp((a + b))`
                lines[readers[0]] = re.sub(rf"\b{name}\b", lambda _, text=text: text, lines[readers[0]])
        return lines


@lru_cache(1000)  # programs that shrink have most statements in common
def _parsed(text: str) -> ast.Module:
    """Returns a module with the function in `text` and the helper functions that `text` can call."""
    module = parse_module(text, "<random>")
    return replace(module, functions=(*HELPER_FUNCTIONS, *module.functions))


# ---- programs as lists of choices ----------------------------------------------------------


class Tape:
    """Repeats recorded choices. Each number in the list `numbers` is the index of the chosen option.

    After the last recorded choice, a `Tape` makes random choices with `rng`, or takes the first option if there is no
    `rng`.
    """

    def __init__(self, numbers: Sequence[int] = (), rng: random.Random | None = None) -> None:
        self.given, self.rng = numbers, rng
        self.numbers: list[int] = []

    def __call__(self, options: Sequence[Any], /) -> Any:
        k = len(self.numbers)
        if k < len(self.given):
            number = min(self.given[k], len(options) - 1)
        else:
            number = self.rng.randrange(len(options)) if self.rng else 0
        self.numbers.append(number)
        return options[number]


def recorded(seed: int, max_ops: int = 8) -> tuple[RandomProgram, list[int]]:
    """Returns the random program of a seed, with up to `max_ops` statements, and a list of the choices that made the
    program.
    """
    tape = Tape(rng=random.Random(seed))
    return written(tape, max_ops), tape.numbers


def written(tape: Tape, max_ops: int = 8) -> RandomProgram:
    return SmallWriter(tape).program(tape(range(1, max_ops + 1)))


def smaller(numbers: Sequence[int], fails: Callable[[RandomProgram], bool], tries: int = 300) -> RandomProgram:
    """Returns a simpler random program for which `fails` is still true.

    If no simpler program fails, returns the original program.

    The argument `numbers` has the random choices from which the original program is made. The original program must
    fail. To simplify a program, the search removes numbers from `numbers` or makes numbers smaller. Each simpler
    program that fails becomes the new start of the search. The search tries at most `tries` programs.
    """
    example, untried = written(Tape(numbers)), _candidates(numbers)
    seen = {repr(example)}
    while tries > 0 and (candidate := next(untried, None)) is not None:
        tape = Tape(candidate)
        other = written(tape)
        if repr(other) not in seen:
            seen.add(repr(other))
            tries -= 1
            if fails(other):
                example, untried = other, _candidates(tape.numbers[: len(candidate)])
    return example


def _candidates(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yields simpler lists of numbers: some omit numbers, in others one number is smaller."""
    for length in (32, 16, 8, 4, 2, 1):
        for start in range(0, len(numbers), length):
            yield [*numbers[:start], *numbers[start + length :]]
    for k, n in enumerate(numbers):
        for number in sorted({m for m in (0, 1, n - 1) if 0 <= m < n}):
            yield [*numbers[:k], number, *numbers[k + 1 :]]
