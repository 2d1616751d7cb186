"""Makes classes of records and classes of nodes. Classes of records and nodes are frozen dataclasses with slots.
Records are compared by their fields. A node, such as a node of the syntax tree, is equal only to itself.

    class Axis(Record):
        name: str
        extent: Dim

    Axis("i", M)                                a record

    class Node(metaclass=NodeClass):
        span: Span

    class Name(Node):
        id: str

    Name(span, "x")                             a node

The metaclasses `RecordClass` and `NodeClass` make a frozen dataclass from a class with annotated fields. The one idea:
a metaclass makes the dataclasses, so a file that defines nodes needs no decorators and reads like a grammar. A class
can change an option of its dataclass: with `class Loop(Record, eq=False)`, loops are compared by identity. The text of
a node (`repr`) does not show the node's fields, because the text of a deep tree would be too long.

The annotations say which fields hold nodes, so `children` and `with_children` work for the nodes of every IR.
`postorder` lists the nodes of a graph or an expression, each after its children. `grouped` lists the values that have
the same key, such as the users of each node.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_args, get_type_hints

K = TypeVar("K")
N = TypeVar("N")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class RecordClass(type):
    """The metaclass of record classes."""

    usual: ClassVar[dict[str, bool]] = {}

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: bool) -> Any:
        made = super().__new__(cls, name, bases, namespace)
        if "__slots__" in namespace:  # `Record`, or the class that `dataclass` makes a second time, with slots
            return made
        return dataclass(frozen=True, slots=True, **cls.usual | options)(made)  # type: ignore[call-overload]


class Record(metaclass=RecordClass):
    """The base of classes whose objects are values that never change, such as an axis of a kernel."""

    __slots__ = ()


@dataclass_transform(frozen_default=True, eq_default=False)
class NodeClass(RecordClass):
    """The metaclass of node classes."""

    usual: ClassVar[dict[str, bool]] = {"eq": False, "repr": False}


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
class KeywordNodeClass(NodeClass):
    """The metaclass of node classes with keyword-only fields."""

    usual: ClassVar[dict[str, bool]] = {**NodeClass.usual, "kw_only": True}


@cache
def node_fields(cls: type) -> tuple[str, ...]:
    """Returns the names of the fields that hold nodes. For example, a `tuple[Expr, ...]` field holds nodes."""
    types = get_type_hints(cls)
    return tuple(f.name for f in fields(cls) if _has_nodes(types[f.name]))


def _has_nodes(kind: Any) -> bool:
    return isinstance(kind, NodeClass) or any(map(_has_nodes, get_args(kind)))


def children(node: Any) -> tuple[Any, ...]:
    """Returns the children of a node: the nodes in its fields, in the order of the fields. If a field is a tuple of
    nodes, all nodes of the tuple are children.
    """
    found: list[Any] = []
    for name in node_fields(type(node)):
        _gather(getattr(node, name), found)
    return tuple(found)


def _gather(value: Any, found: list[Any]) -> None:
    if type(value) is tuple:
        for part in value:
            _gather(part, found)
    elif isinstance(type(value), NodeClass):
        found.append(value)


def with_children(node: N, change: Callable[[Any], Any]) -> N:
    """Replaces each child of a node by `change(child)`. Returns a copy of the node, or the same node if no child
    changes.
    """

    def new(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(new, value))
        return change(value) if isinstance(type(value), NodeClass) else value

    old = {name: getattr(node, name) for name in node_fields(type(node))}
    made = {name: new(value) for name, value in old.items()}
    return node if made == old else replace(node, **made)  # type: ignore[type-var]


def postorder(roots: Iterable[N], below: Callable[[N], Iterable[N]]) -> list[N]:
    """Returns the roots and their descendants in postorder, without duplicates. The function `below(node)` returns the
    children of a node.

    The function does not recurse, so deep graphs need no deep call stack.
    """
    order: dict[N, None] = {}
    stack = [*roots][::-1]
    while stack:
        if missing := [o for o in below(stack[-1]) if o not in order]:
            stack += reversed(missing)
        else:
            order.setdefault(stack.pop())
    return list(order)


def grouped(pairs: Iterable[tuple[K, N]]) -> defaultdict[K, list[N]]:
    """Groups the values by key. The values of a key have the order of the pairs (key, value). If a key is in no pair,
    its list of values is empty.
    """
    groups = defaultdict[K, list[N]](list)
    for key, value in pairs:
        groups[key].append(value)
    return groups
