"""The parameters of functions that are not elementwise, and the functions that are written in the language itself.

In: signatures.toml, with parameters as in Python, and the files of library/. Out: tables for everything that calls
functions (the typer, the numpy evaluator) or lists them (docs, suggestions). `REQUIRED` marks a parameter without a
default. A parameter with a leading `*` takes all remaining positional arguments as a tuple.
"""

from __future__ import annotations

import ast as python
import tomllib
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.operators import REDUCTIONS, SCANS
from minitri.language import ast
from minitri.language.parser import parse_module


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()

Signature = dict[str, Any]
V = TypeVar("V")


def _signature(text: str) -> Signature:
    """`x, axis=None` → each parameter with its default."""
    parts = [parameter.partition("=") for parameter in text.split(", ")]
    return {name: python.literal_eval(default) if equals else REQUIRED for name, equals, default in parts}


def _form(name: str, form: str) -> Signature:
    """The signature of a reduction or scan. Sums and products have one more parameter, `dtype`."""
    return _signature(_TABLES["forms"][f"accumulating_{form}" if REDUCTIONS[name].kind in ("sum", "product") else form])


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SIGNATURES: dict[str, Signature] = {
    **{name: _form(name, "reduction") for name in REDUCTIONS},
    **{name: _signature(text) for name, text in _TABLES["averages"].items()},
    **{f"cumulative_{name}": _form(name, "scan") for name in SCANS},
    **{name: _signature(text) for name, text in _TABLES["functions"].items()},
}
FUNCTION_ALIASES: dict[str, str] = _TABLES["aliases"]
KEYWORD_ALIASES: dict[str, str] = _TABLES["parameter_aliases"]
EXAMPLES: dict[str, str] = _TABLES["examples"]


@cache
def library_functions() -> dict[str, ast.Function]:
    """The functions that are written in the language itself, by name. They are inlined where they are called."""
    files = sorted((Path(__file__).parent / "library").glob("*.mt"))
    modules = [parse_module(file.read_text(), f"minitri/language/library/{file.name}") for file in files]
    return {function.name: function for module in modules for function in module.functions}


def bind(name: str, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """Arguments by parameter name, with defaults filled in. CompileError MT0102 if they do not fit."""
    signature = SIGNATURES[name]
    bound: dict[str, Any] = {}
    rest = list(args)
    for parameter in signature:
        if parameter.startswith("*") and rest:
            bound[parameter[1:]] = rest[0] if len(rest) == 1 else tuple(rest)
            rest = []
        elif rest:
            bound[parameter] = rest.pop(0)
    if rest:
        count = len(signature)
        message = f"{name} takes at most {count} argument{'s' * (count != 1)}, not {len(args)}"
        raise CompileError("MT0102", message, help=describe(name))
    for key, given in keywords.items():
        parameter = _parameter(name, key, signature)
        if parameter in bound:
            raise CompileError("MT0102", f"{name} got `{parameter}` twice", help=describe(name))
        bound[parameter] = given
    for parameter, default in signature.items():
        plain = parameter.lstrip("*")
        if plain not in bound and default is REQUIRED:
            raise CompileError("MT0102", f"{name} needs its argument `{plain}`", help=describe(name))
        bound.setdefault(plain, default)
    return bound


def _parameter(name: str, key: str, signature: Signature) -> str:
    plain = [p.lstrip("*") for p in signature]
    parameter = key if key in plain else KEYWORD_ALIASES.get(key, key)
    if parameter not in plain:
        aliases = [a for a, p in KEYWORD_ALIASES.items() if p in plain]
        help = suggest(key, [*plain, *aliases]) or describe(name)
        raise CompileError("MT0102", f"{name} has no argument `{key[:40]}`", help=help)
    return parameter


def describe(name: str) -> str:
    """The signature as one would write it: `sum(x, axis=None, keepdims=False)`."""
    shown = [p if d is REQUIRED else f"{p}={d}" for p, d in SIGNATURES[name].items()]
    return f"`{name}({', '.join(shown)})`"


# ---- calls that are made once --------------------------------------------------------------


class Memo(Generic[V]):
    """Results of calls, by function and arguments. Equal calls are made once.

        def f1(x): return f0(x) + f0(x)        f0(x) is made once, though it is called twice
        def f2(x): return f1(x) + f1(x)        so f2 needs three calls, not seven

    Without this the number of calls doubles with each level of functions that call another twice.
    `key` gives the identity of a value that is neither a number nor a tuple.
    """

    def __init__(self, key: Callable[[Any], Hashable]) -> None:
        self._key = key
        self._made: dict[Hashable, V] = {}

    def once(self, function: Hashable, arguments: Mapping[str, V], make: Callable[[], V]) -> V:
        """The result of an earlier equal call, or else of `make()`."""
        key = function, tuple((name, self._of(value)) for name, value in sorted(arguments.items()))
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _of(self, value: Any) -> Hashable:
        """Keys are equal if no program can tell the values apart. 1, 1.0 and True differ, and so do 0.0 and -0.0."""
        match value:
            case tuple():
                return tuple(map(self._of, value))
            case bool() | int() | float():
                return type(value).__name__, repr(value)
            case _:
                return "other", self._key(value)
