"""The classes of the syntax tree. The parser makes the syntax tree from the text of a program, or from a Python
function.

    module    = Module(functions)
    function  = Function(name, params, returns, body)
    param     = Param(name, annotation | None, default | None)
    type      = ArrayType(dtype, dims) | ScalarType("float" | "int" | "bool")
    dims      = expressions over names, integers, + - * // % ; Pack("B") for `*B`
    statement = Assign(targets, value) | Return(value)
    expr      = Name | Number | String | NoneLiteral | Tuple | List | Unary | Binary | Compare
              | Conditional | Call | Attribute | Subscript
    index     = expr | Slice(start, stop, step) | EllipsisLiteral

Every node has its span, the range of its characters in the source. `x.sum()` and `sum(x)` become the same Call, because
the object before the dot of a method call becomes the first argument. The syntax tree omits the comments, docstrings,
parentheses and whitespace of the source. Tables at the end of the file say what the operators of Unary, Binary and
Compare compute for Python numbers. The last table of the file has named numbers such as `pi`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, Union

from minitri.base.nodes import NodeClass, children, with_children
from minitri.base.spans import Source, Span

T = TypeVar("T")


class Node(metaclass=NodeClass):
    __dataclass_fields__: ClassVar[dict[str, Any]]
    span: Span


class Word(Node):
    """A token of the source text.

    The field `type` is the name of a terminal symbol of the grammar. The type of a word that Python reserves is
    `KEYWORD`. The type `$END` marks the end of the text.
    """

    type: str
    text: str


class Name(Node):
    id: str


class Number(Node):
    value: int | float | bool


class String(Node):
    value: str


class NoneLiteral(Node):
    value: ClassVar[None] = None


class EllipsisLiteral(Node):
    value: ClassVar[Any] = Ellipsis


class Tuple(Node):
    """A tuple that is written out, such as `(a, b)`."""

    elements: tuple[Expr, ...]


class List(Tuple):
    """A list literal, such as `[a, b]`.

    A list that is used as an index is an array. A list that is not used as an index means the same as a tuple.
    """


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
    """The expression `body if test else orelse`. The condition `test` must be known at compile time."""

    body: Expr
    test: Expr
    orelse: Expr


class Call(Node):
    function: str
    args: tuple[Expr, ...]
    keywords: tuple[tuple[str, Expr], ...] = ()


class Attribute(Node):
    """An attribute of a value, such as `value.T`, `value.mT`, `value.shape` or `value.ndim`."""

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
    """A pack: a starred name in a type, such as `*B` in `f32[*B, N]`. The starred name stands for any number of leading
    axes.
    """

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
    """Yields each dimension of an array type, together with its sizes in `shape`.

    A pack such as `*B` stands for any number of axes, so it has any number of sizes. A dimension without a star has one
    size.
    """
    start = 0
    for d in declared.dims:
        end = start + (len(shape) - len(declared.dims) + 1 if isinstance(d, Pack) else 1)
        yield d, shape[start:end]
        start = end


def postorder(root: Node, holds: Callable[[Conditional], bool] | None = None) -> Iterator[Node]:
    """Yields `root` and every node below it, each node after its children.

    The function does not recurse, so trees of any depth are possible.

    If `holds` is None, the function yields both branches of a conditional expression `a if c else b`. If `holds` is
    given, `postorder` yields only the branch that the condition `c` selects. `postorder` first yields the condition
    `c`, and then asks `holds` whether `c` is true.
    """
    stack: list[tuple[Node, str]] = [(root, "open")]
    while stack:
        node, state = stack.pop()
        if state == "done":
            yield node
        elif holds is None or not isinstance(node, Conditional):
            stack.append((node, "done"))
            stack.extend((child, "open") for child in reversed(children(node)))
        elif state == "open":
            stack += [(node, "tested"), (node.test, "open")]
        else:
            stack += [(node, "done"), (node.body if holds(node) else node.orelse, "open")]


def rewritten(root: Node, change: Callable[[Any], Any]) -> Any:
    """Applies `change` to each node of the tree. The children of a node are changed before the node.

    A node whose children do not change is not copied.
    """
    made: dict[int, Any] = {}
    for node in postorder(root):
        made[id(node)] = change(with_children(node, lambda child: made[id(child)]))
    return made[id(root)]


# ---- operators on Python numbers, and named numbers --------------------------------------------


UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg, "+": lambda x: x * 1, "~": lambda x: not x if isinstance(x, bool) else ~x,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
CONSTANTS = {"inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793, "e": 2.718281828459045}
