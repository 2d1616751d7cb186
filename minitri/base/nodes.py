"""Classes of nodes, such as those of the syntax tree: frozen dataclasses with slots, compared by identity.

    class Node(metaclass=NodeClass):        class Name(Node):
        span: Span                              id: str             Name(span, "x")

In: a class with annotated fields. Out: a dataclass with these fields. The one idea: a metaclass makes the dataclasses,
so a file of nodes needs no decorators and reads like a grammar. The text of a node (`repr`) does not show its fields,
because a tree may be deep. `postorder` lists the nodes of a graph or an expression.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


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


def postorder(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> list[T]:
    """Returns the roots and everything that `below` reaches from them, each item once and after its children.

    The function does not recurse, so deep graphs need no deep call stack.
    """
    order: dict[T, None] = {}
    stack = [*roots][::-1]
    while stack:
        if missing := [o for o in below(stack[-1]) if o not in order]:
            stack += reversed(missing)
        else:
            order.setdefault(stack.pop())
    return list(order)
