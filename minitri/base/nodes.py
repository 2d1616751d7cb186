"""Classes of nodes, such as those of the syntax tree: frozen dataclasses with slots, compared by identity.

    class Node(metaclass=NodeClass):        class Name(Node):
        span: Span                              id: str             Name(span, "x")

In: a class with annotated fields. Out: a dataclass made from this class. The one idea: a metaclass makes the
dataclasses, so a file that defines nodes needs no decorators and reads like a grammar. The text of a node (`repr`) does
not show the node's fields, because the text of a deep tree would be too long.

The annotations say which fields hold nodes, so `children` and `with_children` work for the nodes of every IR.
`postorder` lists the nodes of a graph or an expression, each after its children.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar, dataclass_transform, get_args, get_type_hints

N = TypeVar("N")


@dataclass_transform(frozen_default=True, eq_default=False)
class NodeClass(type):
    """The metaclass of node classes."""

    only_keywords = False

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        made = super().__new__(cls, name, bases, namespace)
        if "__slots__" in namespace:  # `dataclass` makes the class a second time, with slots
            return made
        return dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=cls.only_keywords)(made)  # type: ignore[call-overload]


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
class KeywordNodeClass(NodeClass):
    """The metaclass of node classes whose fields are given by keyword."""

    only_keywords = True


@cache
def node_fields(cls: type) -> tuple[str, ...]:
    """Returns the names of the fields that hold nodes. A field of the type `tuple[Expr, ...]`, for example, holds
    nodes.
    """
    types = get_type_hints(cls)
    return tuple(f.name for f in fields(cls) if _has_nodes(types[f.name]))


def _has_nodes(kind: Any) -> bool:
    return isinstance(kind, NodeClass) or any(map(_has_nodes, get_args(kind)))


def children(node: Any) -> tuple[Any, ...]:
    """Returns the nodes in the fields of a node, also those in tuples, in the order of the fields."""
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
    """Returns a copy of a node in which `change(child)` replaces each child. Returns `node` if no child changes."""

    def new(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(new, value))
        return change(value) if isinstance(type(value), NodeClass) else value

    old = {name: getattr(node, name) for name in node_fields(type(node))}
    made = {name: new(value) for name, value in old.items()}
    return node if made == old else replace(node, **made)  # type: ignore[type-var]


def postorder(roots: Iterable[N], below: Callable[[N], Iterable[N]]) -> list[N]:
    """Returns the roots and all nodes below the roots, each node once and after its children. `below` is a function
    that returns the children of a node.

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
