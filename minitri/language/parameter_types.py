"""The types of an expression's parameters, as `mt.compile` gets them.

    compile("x + y", x="f32[N]", y="f32[N]")              each as a keyword
    compile("x + y", types={"x": "f32[N]", "y": "f32[N]"})     or all in one mapping

`compile` has keywords of its own, such as `entry`. A parameter may have the same name: in
`compile("2 * entry", entry="f32[N]")` the expression has the name and the value is a type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.language.parser import is_module, parse_type


def shared_names(text: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The keywords of `compile` that give the type of a parameter: name → type text."""
    if is_module(text):
        return {}
    return {name: value for name, value in settings.items() if _has_name(text, name) and _is_type(value)}


def _has_name(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _is_type(value: Any) -> bool:
    """Whether a value is a type, or is written like one: `float32[N]` is a mistake in a type, no name."""
    if not isinstance(value, str):
        return False
    if re.fullmatch(r"\w+\[.*\]", value.strip()):
        return True
    try:
        parse_type(value)
    except CompileError:
        return False
    return True


def all_types(keywords: Mapping[str, Any], types: Any) -> dict[str, str | None]:
    """The types of keywords and of the mapping `types` together.

    CompileError MT0004 for a value that is no text, MT0104 for a parameter that both name."""
    if not isinstance(types, Mapping):
        message = f"`types` is a mapping from names to types, not {type(types).__name__}"
        raise CompileError("MT0004", message, help='as in types={"x": "f32[M, N]"}')
    for name, kind in {**types, **keywords}.items():
        shown = str(name)[:40]
        if not isinstance(kind, (str, type(None))):
            message = f"the type of `{shown}` is a text, not {type(kind).__name__}"
            raise CompileError("MT0004", message, help=f'as in {shown}="f32[M, N]"')
        if name in types and name in keywords:
            raise CompileError("MT0104", f"the type of `{shown}` is given twice", help="leave one of the two out")
    return {**{str(name): kind for name, kind in types.items()}, **keywords}
