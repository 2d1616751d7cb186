"""Rewrites a call of another library's function in the language, with the caller's own arguments.

    np.average(x + 1, axis=0)      row: average(x, axis) → mean(x, axis=axis)      mean(x + 1, axis=0)

In: a row of names.csv, and the arguments as the program writes them. Out: the rewritten call, or "" if the row needs an
argument that the call does not give. The one idea: the column `instead` is a template, in which the name of a parameter
stands for an argument. An argument such as `x + 1` gets parentheses where it stands beside an operator of the template.
"""

import re
from collections.abc import Mapping, Sequence

from minitri.base.types import DTYPES, from_numpy
from minitri.language.foreign.names import Foreign

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!\s*(?:=(?!=)|\())")
_IN_BRACKETS = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")
_OPERAND = re.compile(r"[\w.]*|\"[^\"]*\"|'[^']*'")


def rewritten_call(row: Foreign, args: Sequence[str], keywords: Mapping[str, str]) -> str:
    """Returns the text to write instead of a call with these arguments."""
    given = ", ".join([*args, *(f"{name}={text}" for name, text in keywords.items())])
    if row.instead in DTYPES:
        return f"astype({given}, {row.instead})" if given else ""
    if not row.arguments:
        return f"{row.instead}({given})" if row.instead.isidentifier() else ""
    values = row.bound(args, keywords)
    if values is None:
        return ""
    text = values.get("dtype", "")
    name = text.strip("\"'").rpartition(".")[2]
    if dtype := DTYPES.get(name) or from_numpy(name):
        values["dtype"] = str(dtype)
    elif text[:1] in ("'", '"'):
        return values["x"] if row.name == "to" else ""  # torch's `x.to("cuda")`
    return _plain(substituted(row.instead, values))


def _plain(text: str) -> str:
    """Simplifies a text: `1 if False else f(x)` becomes `f(x)`, and `x.shape.shape[0]` becomes `x.ndim`."""
    choice = r"(\w+(?:\(.*\))?) if (True|False) else (\w+(?:\(.*\))?)"
    return re.sub(choice, lambda m: m[1] if m[2] == "True" else m[3], text).replace(".shape.shape[0]", ".ndim")


def substituted(template: str, values: Mapping[str, str]) -> str:
    """Returns the template, with the name of each parameter replaced by its text in `values`.

    In a template, `*rest` stands for any number of arguments.
    """
    for name in re.findall(r"\*(\w+)", template):
        if name in values:
            written = values[name]
            template = re.sub(rf", \*{name}\b", f", {written}" if written else "", template)

    def argument(match: re.Match[str]) -> str:
        text = values.get(match[0])
        if text is None:
            return match[0]
        before, after = template[: match.start()].rstrip()[-1:], template[match.end() :].lstrip()[:1]
        alone = before in ("", "(", "[", ",", "=") and after in ("", ")", "]", ",")
        return text if alone or is_operand(text) else f"({text})"

    return _NAME.sub(argument, template)


def is_operand(text: str) -> bool:
    """Checks whether the text of an expression can stand beside any operator without parentheses.

    Names, numbers, calls, subscripts, and anything that is already in brackets need no parentheses.
    """
    plain, before = text, ""
    while plain != before:
        plain, before = _IN_BRACKETS.sub("", plain), plain
    return bool(text) and _OPERAND.fullmatch(plain) is not None
