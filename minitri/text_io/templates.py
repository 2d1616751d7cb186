"""Defines templates for the lines in the text of a compilation stage. The same template is used to write and to read a
line.

    reduce.<op> <x> {over = <over:[axis]>, rescale = <rescale?>}         the template
    reduce.max %0 {over = [j]}                                           a line without its result and type

A template looks like the line that it describes. `<x>` is a placeholder for the field `x` of an operation.

    <x>                   the name of a value that an earlier line defines
    <along:axis>          a field of the kind `axis`, which the reader's method `axis` reads
    <over:[axis]>         a list of such fields, in brackets
    <args...>             all remaining operands. With a kind, `<axes:axis...>`
    rescale = <rescale?>  an optional attribute, which is not written if its value is None or ()
    <op>                  the name of an operator, a reduction or a scan

The method `Template.write` takes the fields of an operation. The result is the text of the operation. The method
`LineReader.fields` takes a parsed line, and returns the class and the fields of the operation. Each intermediate
representation (graph, kernels, tile programs) has its templates in a file `lines.toml` in its folder. The file text.py
in the folder of a representation writes the lines. The file text.py or parse.py in this folder reads the lines.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar

from minitri.base.diagnostics import suggest
from minitri.base.dims import Dim
from minitri.base.nodes import Record
from minitri.base.operators import OPERATORS, REDUCTIONS, SCANS
from minitri.base.spans import Source, Span
from minitri.base.types import DType
from minitri.graph.ir import PRECISIONS
from minitri.text_io.read_expressions import Names, check_attributes, read_dtype, read_list, read_number, read_text
from minitri.text_io.stage_parser import Line, Mistake, Node, expect

V = TypeVar("V")
_HOLE = re.compile(r"(?:(\w+) = )?<(\w+)(?::(\[?)(\w+)\]?)?(\.\.\.|\?)?>")
_FAMILIES = {"reduce": REDUCTIONS, "scan": SCANS}


class Hole(Record):
    """A placeholder of a template. For example, `<x>` stands for an operand. The placeholder `over = <over:[axis]>`
    stands for an attribute of the operation, here a list of axes.

    The field `mark` is "?" for an optional attribute, "..." for all remaining operands, and "" for other placeholders.
    The field `bracket` is "[" for a list of values in brackets, and "" for a single value.
    """

    word: str
    field: str
    bracket: str
    kind: str
    mark: str

    def write(self, value: Any, writer: Any) -> str:
        """Returns the value of a field as text. For a field of the kind "axis", the method `writer.axis` makes the
        text. If `writer` has no method for the kind of the field, the text is `str(value)`.
        """
        write = getattr(writer, self.kind or "ref", str)
        return f"[{', '.join(map(write, value))}]" if self.bracket else write(value)

    def read(self, e: Node, reader: Any) -> Any:
        read = getattr(reader, self.kind or "ref")
        return tuple(map(read, read_list(e))) if self.bracket else read(e)


class Template:
    """A template that writes and reads one kind of line.

    The docstring of templates.py describes the syntax of templates.
    """

    def __init__(self, text: str) -> None:
        self.head, _, rest = text.partition(" ")
        holes = [Hole(*parts) for parts in _HOLE.findall(rest)]
        self.operands = [h for h in holes if not h.word]
        self.attributes = [h for h in holes if h.word]
        self.between = " " if "> <" in rest else ", "

    def write(self, fields: Mapping[str, Any], writer: Any, more: Sequence[str] = ()) -> str:
        """Returns the text of an operation from a dict of its fields. Operands that are None are left out.

        The argument `more` has the texts of additional attributes of the operation.
        """
        values = ((h, v) for h in self.operands for v in (fields[h.field] if h.mark == "..." else [fields[h.field]]))
        operands = [h.write(v, writer) for h, v in values if v is not None]
        words = [*self.words(fields, writer), *more]
        head = self.head.replace("<op>", fields.get("op", ""))
        return f"{head} {self.between.join(operands)}".rstrip() + (f" {{{', '.join(words)}}}" if words else "")

    def words(self, fields: Mapping[str, Any], writer: Any) -> list[str]:
        """Returns the texts of the attributes, such as `over = [j]`. An optional attribute without a value is left
        out.
        """
        shown = [h for h in self.attributes if h.mark != "?" or fields[h.field] not in (None, ())]
        return [f"{h.word} = {h.write(fields[h.field], writer)}" for h in shown]


def templates(module: Any, table: Mapping[str, Any]) -> dict[type[Any], Template]:
    """Returns a template for each class that the table `lines` of a TOML file names. The argument `module` contains the
    classes.
    """
    return {getattr(module, name): Template(line) for name, line in table["lines"].items()}


def fields_of(node: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass, by name."""
    return {f.name: getattr(node, f.name) for f in fields(node)}


class LineReader(Generic[V]):
    """Reads the lines of a block, one after another. A subclass has a method for each kind of field: the method `axis`
    reads fields of the kind `axis`.

    `templates`: a dict from the class of an operation to the template of its lines.
    `precisions`: the precisions that a matrix product can have.
    `anywhere`: the placeholders for attributes that are allowed on every line.
    `example`: an example of a type, for error messages.
    `names`: the dimensions, axes and values that the current line can use in index expressions.
    `dtype`: the dtype of the current line's result.
    """

    templates: Mapping[type[Any], Template]
    precisions: Sequence[str] = PRECISIONS
    anywhere: Sequence[Hole] = ()
    example = "f32[i, j]"
    names: Names
    dtype: DType
    text = staticmethod(read_text)

    def __init__(self, source: Source) -> None:
        self.source = source
        self.values: dict[str, V] = {}
        self.taken: set[str] = set()  # all names of values, also of those that are out of scope

    def ref(self, e: Node) -> V:
        """Returns the value with the name `e`. Raises Mistake if no earlier line defines a value with the name `e`."""
        if e.kind != "name" or e.name not in self.values:
            shown = self.source.text[e.start : e.end][:40]
            raise Mistake(e, f"there is no value `{shown}` above", suggest(e.name, self.values))
        return self.values[e.name]

    def number(self, e: Node) -> int | float | bool:
        return read_number(e, self.dtype)

    def dim(self, e: Node) -> Dim:
        return self.names.dim(e)

    def integer(self, e: Node) -> int:
        expect(e.kind == "number" and isinstance(e.parts[0], int), e, "a number is wanted here")
        return e.parts[0]

    def flag(self, e: Node) -> bool:
        return bool(self._word(e, ("true",)))

    def precision(self, e: Node) -> str:
        return self._word(e, self.precisions)

    def _word(self, e: Node, known: Sequence[str]) -> str:
        if e.name not in known:
            raise Mistake(e, f"one of {', '.join(known)} is wanted here", suggest(e.name, known))
        return e.name

    def span(self, line: Line) -> tuple[Span, ...]:
        return (Span(self.source, line.start, line.end),)

    def read_result(self, result: Node, type: Node) -> tuple[Node, ...]:
        """Reads the name and the type of a new value, such as `%1: f32[i]`. Returns the syntax nodes in brackets, such
        as `i`, and stores the dtype in the field `dtype`.
        """
        expect(result.name not in self.taken, result, f"`{result.name}` is there already")
        self.taken.add(result.name)
        expect(type.parts[1] is not None, type, f"the type of a value is written as in {self.example}, or f32[]")
        self.dtype = read_dtype(type)
        return type.parts[1]

    def fields(self, line: Line, absent: Collection[str] = ()) -> tuple[type[Any], dict[str, Any]]:
        """Parses the operation in a line. Returns the class of the operation, and a dictionary of the operation's
        fields.

        The names in `absent` are operations and fields that are not allowed in this text.
        """
        cls, found = self._kind(line, absent)
        template = self.templates[cls]
        attributes = [h for h in (*template.attributes, *self.anywhere) if h.field not in absent]
        check_attributes(line.attributes, [h.word for h in attributes])
        found |= self._operands(line, [h for h in template.operands if h.field not in absent])
        for h in attributes:
            if h.word in line.attributes:
                found[h.field] = h.read(line.attributes[h.word], self)
            elif h.mark != "?":
                raise Mistake(line.op, f"`{line.op.name[:40]}` needs the attribute `{h.word}`")
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
        """Returns the operands of a line, as fields of the operation."""
        fixed, count = [h for h in holes if not h.mark], len(line.operands)
        # If the template has a placeholder such as `<args...>`, the line must have at least one operand.
        least = len(fixed) if fixed == holes else max(len(fixed), 1)
        if count < least or fixed == holes and count > least:
            more = "" if fixed == holes else "at least "
            raise Mistake(line.op, f"`{line.op.name}` takes {more}{least} operand{'s' * (least != 1)}, not {count}")
        found: dict[str, Any] = {h.field: h.read(e, self) for h, e in zip(fixed, line.operands)}
        rest = line.operands[len(fixed) :]
        return found | {h.field: tuple(h.read(e, self) for e in rest) for h in holes[len(fixed) :]}
