"""Writes random statements: draws forms (statements with placeholders) from a table, and fills the placeholders.

A `StatementWriter` takes a table of statements with placeholders, and a function that makes random choices. The method
`StatementWriter.attempt` tries to add one statement to the program.

    "relu({x} @ {factor})"     →     v2 = relu(v1 @ w)

Two modules write whole programs with the class `StatementWriter`. The module small_random_programs.py writes programs
for tests, and minitri/bench/random_programs.py writes programs of everyday sizes. A writer of whole programs is a
subclass of `StatementWriter`. The subclass defines two methods, `placeholder` and `value`. The method `placeholder`
returns the text that replaces a placeholder such as {x}. The method `value` computes the value that a new statement
assigns. If the method `value` raises an exception that `refusals` lists, the statement is left out of the program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minitri.base.nodes import Record


class DoesNotFit(Exception):
    """Raised if a template cannot be filled, or if the value of the new statement is invalid or too large."""


def refuse_if(fails: bool) -> None:
    """Raises DoesNotFit if `fails` is true."""
    if fails:
        raise DoesNotFit


class Statement(Record):
    """A statement `name = text`.

    The field `kind` is a key in the table of forms. The field `reads` has the names of the values that `text` uses, and
    `shape` is the shape of the result.
    """

    name: str
    text: str
    kind: str
    reads: frozenset[str]
    shape: tuple[int, ...]


class Filled(dict[str, Any]):
    """Maps each placeholder of a statement to the text that replaces it.

    If a placeholder occurs several times in a statement, usually the same text replaces all its occurrences. Each
    occurrence of a placeholder gets a new text if `words` or `drawn_again` contains the placeholder.
    """

    def __init__(self, writer: StatementWriter, kind: str, x: str) -> None:
        super().__init__(x=x)
        self.writer, self.kind = writer, kind

    def __missing__(self, name: str) -> Any:
        if name in self.writer.words:
            return self.writer.choose(self.writer.words[name]).format_map(self)
        made = self.writer.placeholder(name, self)
        if name not in self.writer.drawn_again:
            self[name] = made
        return made


class StatementWriter:
    """A program under construction: its parameters, values and statements, by name.

    `kinds`: for each kind of statement, the lists of forms (templates of statements), by name.
    `words`: a dict from placeholders to lists of texts. Each occurrence of a placeholder gets one text from the
        placeholder's list.
    `drawn_again`: other placeholders that get a new text at each occurrence, as the placeholders in `words` do.
    `refusals`: exception classes. If `placeholder` or `value` raises an exception of these classes, the statement is
        not added to the program.

    A subclass of `StatementWriter` defines two methods:

    `placeholder(name, filled)` returns the text for a placeholder, or raises DoesNotFit. `value(text, reads, group)`
    returns the value that a statement computes, or raises DoesNotFit. The argument `group` is the name of the list that
    contains the statement's form.
    """

    placeholder: Callable[[str, Filled], Any]
    value: Callable[[str, Sequence[str], str], Any]

    drawn_again: frozenset[str] = frozenset()
    refusals: tuple[type[Exception], ...] = (DoesNotFit,)

    def __init__(self, table: Mapping[str, Any], choose: Callable[[Sequence[Any]], Any]) -> None:
        self.kinds, self.words, self.choose = table["kinds"], table.get("words", {}), choose
        self.arrays: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.statements: list[Statement] = []

    def attempt(self, kind: str, operand: str, form: str = "") -> bool:
        """Tries to add a statement of the given kind. The attempt fails if no text fits a placeholder such as {x}. The
        attempt also fails if the value of the statement cannot be computed. Returns whether the statement was added.

        If the statement was not added, the parameters that were made for this statement are removed.
        """
        before = set(self.arrays)
        lists = [(group, forms) for group, forms in self.kinds[kind].items() if isinstance(forms, list)]
        group, chosen = ("forms", form) if form else self.choose([(g, f) for g, forms in lists for f in forms])
        name = f"v{len(self.statements) + 1}"
        try:
            text = chosen.format_map(Filled(self, kind, operand))
            reads = sorted(self.values.keys() & words(text))
            self.values[name] = self.value(text, reads, group)
        except self.refusals:
            for made in self.arrays.keys() - before:
                del self.arrays[made], self.values[made]
            return False
        self.statements.append(Statement(name, text, kind, frozenset(reads), tuple(self.values[name].shape)))
        return True

    def ends(self) -> list[Statement]:
        """Returns the statements whose results are not used by other statements of the program."""
        read = names_read(self.statements)
        return [s for s in self.statements if s.name not in read]

    def needed(self, results: Sequence[str]) -> list[Statement]:
        """Returns the statements that the values in `results` depend on."""
        names = set(results)
        for s in reversed(self.statements):
            names |= s.reads if s.name in names else set()
        return [s for s in self.statements if s.name in names]


def names_read(statements: Sequence[Statement]) -> set[str]:
    return set[str]().union(*(s.reads for s in statements))


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", text)
