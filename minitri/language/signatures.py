"""Reads the signatures of functions that are not elementwise, such as `sum`, and the text of functions that are written
in minitri's language.

This module reads signatures.toml, where parameters are written as in Python, and the files of the folder library/. The
module makes tables from the name of each function to the function's signature or source text. The graph builder and the
numpy evaluator use the tables of this file to call a function by its name. The documentation and the suggestions in
error messages take the names of functions from the tables of this file. `REQUIRED` marks a parameter without a default.
A parameter with a leading `*` takes all remaining positional arguments as a tuple.
"""

import ast as python
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError, misspelt
from minitri.base.operators import ALIASES, OPERATORS, REDUCTIONS, SCANS
from minitri.base.spans import Span
from minitri.base.toml_tables import table_beside
from minitri.language import ast
from minitri.language.parser import parse_module_at, whole_text

REQUIRED: Any = object()
Signature = dict[str, Any]


def _signature(text: str) -> Signature:
    """Returns the parameters in a text such as `x, axis=None`, each with its default."""
    parts = [parameter.partition("=") for parameter in text.split(", ")]
    return {name: python.literal_eval(default) if equals else REQUIRED for name, equals, default in parts}


def _form(name: str, form: str) -> Signature:
    """Returns the signature of a reduction or scan."""
    # sums and products also have the parameter `dtype`
    return _signature(_TABLES["forms"][f"accumulating_{form}" if REDUCTIONS[name].kind in ("sum", "product") else form])


_TABLES = table_beside(__file__, "signatures.toml")
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
def library_spans() -> dict[str, Span]:
    """Returns the source range (span) of each library function (written in the language itself), by the function's
    name.
    """
    files = sorted((Path(__file__).parent / "library").glob("*.mt"))
    texts = [whole_text(file.read_text(), f"minitri/language/library/{file.name}") for file in files]
    found = [(text, f) for text in texts for f in re.finditer(r"(?ms)^def (\w+).*?(?=^def |\Z)", text.source.text)]
    return {f[1]: replace(text, start=f.start(), end=f.end()) for text, f in found}


@cache
def library_function(name: str) -> ast.Function:
    """Returns a library function that is written in minitri's language. The function is parsed at the first call.

    Calls of functions that are written in the language itself are inlined.
    """
    return parse_module_at(library_spans()[name]).functions[0]


def signature_of(function: ast.Function) -> Signature:
    """Returns the parameters of a function, each with the syntax tree of its default."""
    return {p.name: REQUIRED if p.default is None else p.default for p in function.params}


def bind(name: str, signature: Signature, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """Returns a dictionary from the names of parameters to the given arguments. If the call gives no argument for a
    parameter, the returned dictionary does not contain this parameter, even if it has a default.

    Raises CompileError MT0102 if the arguments do not fit the parameters.
    """
    bound: dict[str, Any] = {}
    help = described(name, signature)
    rest = list(args)
    for parameter in signature:
        if parameter.startswith("*") and rest:
            bound[parameter[1:]] = rest[0] if len(rest) == 1 else tuple(rest)
            rest = []
        elif rest:
            bound[parameter] = rest.pop(0)
    if rest:
        count = f"{len(signature)} argument{'s' * (len(signature) != 1)}"
        raise CompileError("MT0102", f"{name} takes at most {count}, not {len(args)}", help=help)
    plain = [p.lstrip("*") for p in signature]
    for key, given in keywords.items():
        parameter = key if key in plain else KEYWORD_ALIASES.get(key, key)
        if parameter not in plain:
            known = [*plain, *(a for a, p in KEYWORD_ALIASES.items() if p in plain)]
            raise misspelt("MT0102", f"{name} has no argument", key, known, help)
        if parameter in bound:
            raise CompileError("MT0102", f"{name} got `{parameter}` twice", help=help)
        bound[parameter] = given
    for parameter, default in zip(plain, signature.values()):
        if default is REQUIRED and parameter not in bound:
            raise CompileError("MT0102", f"{name} needs its argument `{parameter}`", help=help)
    return bound


def described(name: str, signature: Signature) -> str:
    """Returns the signature as a programmer would write it, such as `sum(x, axis=None, keepdims=False)`."""
    defaults = {p: d.span.text if isinstance(d, ast.Node) else d for p, d in signature.items()}
    return f"`{name}({', '.join(p if d is REQUIRED else f'{p}={d}' for p, d in defaults.items())})`"


def function_names() -> list[str]:
    """Returns the names of all functions of the language, including aliases."""
    return [*OPERATORS, *ALIASES, *SIGNATURES, *FUNCTION_ALIASES, *library_spans()]
