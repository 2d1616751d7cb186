"""The syntax tree that all three front ends make (text, module, Python function).

    module    = Module(functions)
    function  = Function(name, params, returns, body)
    param     = Param(name, annotation | None, default | None)
    type      = ArrayType(dtype, dims) | ScalarType("float" | "int" | "bool")
    dims      = expressions over names, integers, + - * // % ; Pack("B") for `*B`
    statement = Assign(targets, value) | Return(value)
    expr      = Name | Number | String | NoneLiteral | Tuple | List | Unary | Binary | Compare
              | Conditional | Call | Attribute | Subscript
    index     = expr | Slice(start, stop, step) | EllipsisLiteral

Every node knows its span. `2.sum()` and `sum(2)` are the same Call: a method's receiver is its first argument.
Parentheses and whitespace are gone, nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, ClassVar, TypeVar, Union

from minitri.base.nodes import NodeClass
from minitri.base.spans import Source, Span

T = TypeVar("T")


class Node(metaclass=NodeClass):
    __dataclass_fields__: ClassVar[dict[str, Any]]
    span: Span


class Word(Node):
    """A token. `type` is a terminal of the grammar, `KEYWORD` or `$END`."""

    type: str
    text: str


class Name(Node):
    id: str


class Number(Node):
    value: int | float | bool


class String(Node):
    value: str


class NoneLiteral(Node):
    pass


class EllipsisLiteral(Node):
    pass


class Tuple(Node):
    """A tuple display."""

    elements: tuple[Expr, ...]


class List(Tuple):
    """A list display. As an index it is an array; elsewhere it is a tuple."""


class Unary(Node):
    op: str  # "-" "+" "~"
    operand: Expr


class Binary(Node):
    left: Expr
    op: str  # + - * / // % ** @ & | ^ << >>
    right: Expr


class Compare(Node):
    left: Expr
    op: str  # == != < <= > >=
    right: Expr


class Conditional(Node):
    """`body if test else orelse`; the test must be known at compile time."""

    body: Expr
    test: Expr
    orelse: Expr


class Call(Node):
    function: str
    args: tuple[Expr, ...]
    keywords: tuple[tuple[str, Expr], ...] = ()


class Attribute(Node):
    """`value.T`, `value.mT`, `value.shape`, `value.ndim`."""

    value: Expr
    name: str


class Slice(Node):
    start: Expr | None
    stop: Expr | None
    step: Expr | None


class Subscript(Node):
    value: Expr
    indices: tuple[Expr | Slice | EllipsisLiteral, ...]


Expr = Union[
    Name, Number, String, NoneLiteral, EllipsisLiteral, Tuple, List, Unary, Binary, Compare,
    Conditional, Call, Attribute, Subscript, Slice,
]  # fmt: skip


class Pack(Node):
    """`*B` in a type: any number of leading axes."""

    id: str


class ArrayType(Node):
    dtype: str  # a name of minitri.base.types.DTYPES
    dims: tuple[Expr | Pack, ...]


class ScalarType(Node):
    kind: str  # "float" "int" "bool"


class Param(Node):
    name: str
    annotation: ArrayType | ScalarType | None
    default: Expr | None


class Assign(Node):
    targets: tuple[Name, ...]  # several names unpack a tuple
    value: Expr


class Return(Node):
    value: Expr  # a Tuple is several outputs


class Function(Node):
    name: str
    params: tuple[Param, ...]
    returns: tuple[ArrayType | ScalarType, ...] | None
    body: tuple[Assign | Return, ...]  # ends in its only Return


class Module(Node):
    source: Source
    functions: tuple[Function, ...]


def with_sizes(declared: ArrayType, shape: tuple[T, ...]) -> Iterator[tuple[Expr | Pack, tuple[T, ...]]]:
    """Pairs each dimension of a type with its sizes in `shape`: one size, or several for a pack."""
    start = 0
    for d in declared.dims:
        end = start + (len(shape) - len(declared.dims) + 1 if isinstance(d, Pack) else 1)
        yield d, shape[start:end]
        start = end


def children(node: Node) -> Iterator[Node]:
    """The direct sub-nodes of a node, in source order of the fields."""
    for field in fields(node):
        yield from _nodes(getattr(node, field.name))


def _nodes(value: object) -> Iterator[Node]:
    match value:
        case Node():
            yield value
        case tuple():
            for item in value:
                yield from _nodes(item)
        case _:
            return


def postorder(root: Node, holds: Callable[[Conditional], bool] | None = None) -> Iterator[Node]:
    """Every node below and including `root`, children first. Iterative: depth is no limit.

    With `holds`, only the nodes that the value needs. For `a if c else b` these are c and one branch. `holds` chooses
    the branch when the value of c is known.
    """
    stack: list[tuple[Node, str]] = [(root, "open")]
    while stack:
        node, state = stack.pop()
        if state == "done":
            yield node
        elif holds is None or not isinstance(node, Conditional):
            stack.append((node, "done"))
            stack.extend((child, "open") for child in reversed(list(children(node))))
        elif state == "open":
            stack += [(node, "tested"), (node.test, "open")]
        else:
            stack += [(node, "done"), (node.body if holds(node) else node.orelse, "open")]
