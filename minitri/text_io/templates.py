"""A template for each kind of line: it writes a line of a stage, and it reads one back.

    reduce.<op> <x> {over = <over:axis_names>, rescale = <rescale?>}         the template
    reduce.max %0 {over = [j]}                                         a line without its result and type

A template looks like its line. `<x>` is a hole: it stands for the field `x` of an op.

    <x>                   a value that stands above
    <over:axis_names>     a field of the kind `axis_names`: a reader has a method of this name, and a writer if need be
    <args...>             all operands that are left
    rescale = <rescale?>  an attribute that a line may lack; it is not written for None and ()
    <op>                  an operator, a reduction or a scan, as a part of the first word

In: the fields of an op, or a line of a text. Out: the text of the op, or the fields. graph/text.py and kernels/text.py
have the templates and the writers, graph/parse.py and kernels/parse.py the readers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from minitri.base.diagnostics import suggest
from minitri.base.dims import Dim
from minitri.base.operators import OPERATORS, REDUCTIONS, SCANS
from minitri.base.spans import Source, Span
from minitri.base.types import DType
from minitri.graph.ir import PRECISIONS
from minitri.text_io.nodes import Expr, Line, Mistake
from minitri.text_io.vocabulary import Names, read_attributes, read_list, read_number, read_word, wanted

V = TypeVar("V")
_HOLE = re.compile(r"(?:(\w+) = )?<(\w+)(?::(\w+))?(\.\.\.|\?)?>")
_FAMILIES = {"reduce": REDUCTIONS, "scan": SCANS}


@dataclass(frozen=True)
class Hole:
    """`word = <field:kind mark>`; an operand has no word."""

    word: str
    field: str
    kind: str
    mark: str


class Template:
    def __init__(self, text: str) -> None:
        self.head, _, rest = text.partition(" ")
        holes = [Hole(word or "", field, kind or "ref", mark or "") for word, field, kind, mark in _HOLE.findall(rest)]
        self.operands = [h for h in holes if not h.word]
        self.attributes = [h for h in holes if h.word]
        self.between = " " if "> <" in rest else ", "

    def write(self, fields: Mapping[str, Any], writer: Any) -> str:
        """The text of an op. Operands that are None are left out."""
        operands: list[str] = []
        for h in self.operands:
            values = fields[h.field] if h.mark == "..." else [fields[h.field]]
            operands += [getattr(writer, h.kind, plain)(v) for v in values if v is not None]
        shown = [h for h in self.attributes if h.mark != "?" or fields[h.field] not in (None, ())]
        words = [f"{h.word} = {getattr(writer, h.kind, plain)(fields[h.field])}" for h in shown]
        head = self.head.replace("<op>", fields.get("op", ""))
        return f"{head} {self.between.join(operands)}".rstrip() + (f" {{{', '.join(words)}}}" if words else "")


def plain(value: object) -> str:
    """A field of a kind that no method of a writer is for."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


class LineReader(Generic[V]):
    """Reads the lines of a block, one after another. A subclass has a method for each kind of field.

    one_operand   what is said of ops that have one operand, if they are given another number of them
    names, dtype  what names in an index mean, and the dtype of the result, for the line that is being read
    """

    templates: Mapping[type[Any], Template]
    one_operand: Mapping[str, str]
    names: Names
    dtype: DType

    def __init__(self, source: Source) -> None:
        self.source = source
        self.values: dict[str, V] = {}
        self.taken: set[str] = set()  # names of values, those that cannot be seen any more too

    def ref(self, e: Expr) -> V:
        """A value that stands above."""
        if e.kind != "name" or e.name not in self.values:
            shown = self.source.text[e.start : e.end][:40]
            raise Mistake(e, f"there is no value `{shown}` above", suggest(e.name, self.values))
        return self.values[e.name]

    def number(self, e: Expr) -> int | float | bool:
        return read_number(e, self.dtype)

    def dim(self, e: Expr) -> Dim:
        return self.names.dim(e)

    def dims(self, e: Expr) -> tuple[Dim, ...]:
        return self.names.dims(read_list(e))

    def precision(self, e: Expr) -> str:
        return read_word(e, PRECISIONS)

    def span(self, line: Line) -> tuple[Span, ...]:
        return (Span(self.source, line.start, line.end),)

    def take(self, result: Expr) -> None:
        """Uses a name for a new value."""
        if result.name in self.taken:
            raise Mistake(result, f"`{result.name}` is there already")
        self.taken.add(result.name)

    def fields(self, line: Line, absent: Collection[str] = ()) -> tuple[type[Any], dict[str, Any]]:
        """What an op is, and its fields. `absent`: ops and fields that the text cannot have here."""
        cls, found = self._kind(line, absent)
        template = self.templates[cls]
        attributes = [h for h in template.attributes if h.field not in absent]
        read_attributes(line, [h.word for h in attributes])
        found |= self._operands(line, [h for h in template.operands if h.field not in absent])
        for h in attributes:
            if h.word in line.attributes or h.mark != "?":
                found[h.field] = getattr(self, h.kind)(wanted(line, h.word))
        return cls, found

    def _kind(self, line: Line, absent: Collection[str]) -> tuple[type[Any], dict[str, Any]]:
        heads = {t.head: cls for cls, t in self.templates.items() if t.head not in absent}
        if line.op.name in heads:
            return heads[line.op.name], {}
        family, _, op = line.op.name.partition(".")
        if family in _FAMILIES:
            if op not in _FAMILIES[family]:
                raise Mistake(line.op, f"there is no {family} `{op[:40]}`", suggest(op, _FAMILIES[family]))
            return heads[f"{family}.<op>"], {"op": op}
        if line.op.name != "cast" and line.op.name not in OPERATORS:
            raise Mistake(line.op, f"there is no operator `{line.op.name[:40]}`", suggest(line.op.name, OPERATORS))
        return heads["<op>"], {"op": line.op.name}

    def _operands(self, line: Line, holes: Sequence[Hole]) -> dict[str, Any]:
        """The fields that stand as operands. If the last hole takes all that are left, there is one at least."""
        fixed, count = [h for h in holes if not h.mark], len(line.operands)
        if count != len(fixed) if fixed == holes else count < (len(fixed) or 1):
            raise Mistake(line.op, self.one_operand.get(line.op.name, f"`{line.op.name}` has {count} operands"))
        found: dict[str, Any] = {h.field: getattr(self, h.kind)(e) for h, e in zip(fixed, line.operands)}
        for h in holes[len(fixed) :]:
            found[h.field] = tuple(map(self.ref, line.operands[len(fixed) :]))
        return found
