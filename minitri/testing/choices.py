"""Random programs as lists of choices, and smaller programs from shorter lists.

In: a seed, or numbers. Out: a `Tape`, which the writer asks for each choice and which keeps what
it answered. `smaller` takes pieces out of the numbers and makes single ones 0 while the program
that comes of them still fails. The one idea is hypothesis': shrink the choices, and whatever
comes out is a program by construction.

Left out: arrays (minitri/trust/shrink.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
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
    """The program of the simplest numbers found whose program fails as well; that of `numbers` must."""
    search = _Search(list(numbers), fails, tries)
    before = None
    while before != search.numbers:
        before = search.numbers
        search.simpler_numbers()
        for length in (32, 16, 8, 4, 2, 1):
            search.without_pieces(length)
    return written(Tape(search.numbers))


class _Search:
    def __init__(self, numbers: list[int], fails: Callable[[RandomProgram], bool], tries: int) -> None:
        self.numbers, self.fails, self.tries = numbers, fails, tries
        self.seen = {written(Tape(numbers)).text}

    def accepts(self, numbers: list[int]) -> bool:
        tape = Tape(numbers)
        example = written(tape)
        if self.tries <= 0 or repr(example) in self.seen:
            return False
        self.seen.add(repr(example))
        self.tries -= 1
        if not self.fails(example):
            return False
        self.numbers = tape.numbers[: len(numbers)]
        return True

    def without_pieces(self, length: int) -> None:
        start = 0
        while start < len(self.numbers):
            if not self.accepts(self.numbers[:start] + self.numbers[start + length :]):
                start += length

    def simpler_numbers(self) -> None:
        for k in range(len(self.numbers)):
            if k >= len(self.numbers):
                return
            n = self.numbers[k]
            for number in sorted({m for m in (0, 1, n - 1) if 0 <= m < n}):
                if self.accepts([*self.numbers[:k], number, *self.numbers[k + 1 :]]):
                    break
