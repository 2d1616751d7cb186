"""Random programs as lists of choices, and smaller programs from shorter lists.

In: a seed, or a list of numbers. Out: a `Tape`, which makes the random choices of the program writer and records them
as numbers. The function `smaller` removes or decreases numbers in a list of choices, as long as the resulting program
still fails. The one idea comes from the library hypothesis: the search shrinks the list of choices instead of the
program, because every list of choices gives a valid program.

Left out: shrinking arrays (minitri/trust/shrink_arguments.py).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from minitri.testing.small_random_programs import RandomProgram, SmallWriter

T = TypeVar("T")


class Tape:
    """Makes the choices that the list `numbers` records: each number is the index of the chosen option.

    After the last number, the tape chooses with `rng`, or takes the first option if there is no `rng`.
    """

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


def recorded(seed: int, max_ops: int = 8) -> tuple[RandomProgram, list[int]]:
    """Returns the program of a seed, with up to `max_ops` statements, and the choices that made the program, as
    numbers.
    """
    tape = Tape(rng=random.Random(seed))
    return written(tape, max_ops), tape.numbers


def written(tape: Tape, max_ops: int = 8) -> RandomProgram:
    return SmallWriter(tape).program(tape(range(1, max_ops + 1)))


def smaller(numbers: Sequence[int], fails: Callable[[RandomProgram], bool], tries: int = 300) -> RandomProgram:
    """Returns a program that was made from simpler choices than `numbers` and still fails, so that `fails(program)` is
    true.

    If no simpler program fails, the result is the program that the choices `numbers` made.

    `fails` must be true for the program that the choices `numbers` make. Each simpler program that fails becomes the
    new start of the search. The search tries at most `tries` programs.
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
    """Yields lists without some of the numbers, the shortest lists first.

    After the shorter lists, yields lists in which one number is smaller.
    """
    for length in (32, 16, 8, 4, 2, 1):
        for start in range(0, len(numbers), length):
            yield [*numbers[:start], *numbers[start + length :]]
    for k, n in enumerate(numbers):
        for number in sorted({m for m in (0, 1, n - 1) if 0 <= m < n}):
            yield [*numbers[:k], number, *numbers[k + 1 :]]
