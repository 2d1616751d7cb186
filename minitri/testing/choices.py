"""Random programs as lists of choices, and smaller programs from shorter lists.

In: a seed, or numbers. Out: a `Tape`, which the writer asks for each choice and which keeps what
it answered. `smaller` takes pieces out of the numbers and makes single ones 0 while the program
that comes of them still fails. The one idea is hypothesis': shrink the choices, and whatever
comes out is a program by construction.

Left out: arrays (minitri/trust/shrink.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from minitri.testing.statements import Statements
from minitri.testing.writer import RandomProgram

T = TypeVar("T")
MOST_STATEMENTS = 8


class Tape:
    """Choices from `numbers`; past their end from `rng`, or else the first option."""

    def __init__(self, numbers: Sequence[int] = (), rng: random.Random | None = None) -> None:
        self.given, self.rng = numbers, rng
        self.numbers: list[int] = []

    def __call__(self, options: Sequence[T], /) -> T:
        k = len(self.numbers)
        if k < len(self.given):
            number = min(self.given[k], len(options) - 1)
        else:
            number = self.rng.randrange(len(options)) if self.rng else 0
        self.numbers.append(number)
        return options[number]


def recorded(seed: int) -> tuple[RandomProgram, list[int]]:
    """The program of a seed, and the choices it was made by."""
    tape = Tape(rng=random.Random(seed))
    return written(tape), tape.numbers


def written(tape: Tape) -> RandomProgram:
    return Statements(tape).program(tape(range(1, MOST_STATEMENTS + 1)))


def smaller(numbers: Sequence[int], fails: Callable[[RandomProgram], bool], tries: int = 300) -> RandomProgram:
    """The program of the simplest numbers found whose program fails as well; that of `numbers` must.

    Takes the first candidate that fails and begins again, at most `tries` programs in all.
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
    """Shorter numbers, the shortest first, and then numbers of which one is smaller."""
    for length in (32, 16, 8, 4, 2, 1):
        for start in range(0, len(numbers), length):
            yield [*numbers[:start], *numbers[start + length :]]
    for k, n in enumerate(numbers):
        for number in sorted({m for m in (0, 1, n - 1) if 0 <= m < n}):
            yield [*numbers[:k], number, *numbers[k + 1 :]]
