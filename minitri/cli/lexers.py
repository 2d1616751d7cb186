"""Colours the texts of stages, and error messages, for a terminal.

    highlighted("Stage", "%2: f32[i] = add %0, %1")

The function `highlighted` takes the name of a lexer, and a text. The function returns the text with escape codes, which
colour the tokens. The table lexers.toml has the rules of each lexer. For LLVM IR, PTX and AMD's assembly, minitri does
not use the lexers of pygments, because these lexers mark some instructions of Triton as errors.

The table lexers.toml has no lexer for Python, because pygments has a good lexer for Python. The module terminal.py
decides whether a stream gets colour.
"""

from pkgutil import resolve_name
from typing import Any

from pygments import highlight
from pygments.formatters import TerminalFormatter
from pygments.lexer import Lexer, RegexLexer, bygroups
from pygments.token import string_to_tokentype

from minitri.base.toml_tables import table_beside

TABLE = table_beside(__file__, "lexers.toml")
RULES: dict[str, list[list[str]]] = TABLE["rules"]
# The colour of each kind of token, on a light and on a dark background.
COLOURS = {string_to_tokentype(kind): (colour, colour) for kind, colour in TABLE["colours"].items()}


def highlighted(name: str, text: str) -> str:
    """Returns the text, with escape codes that colour its tokens on a terminal."""
    return highlight(text, lexer(name), TerminalFormatter(colorscheme=COLOURS))


def lexer(name: str) -> Lexer:
    """Returns the lexer called `name`. A lexer with a name such as `MLIR` is defined in lexers.toml.

    A name with a colon, such as `pygments.lexers:PythonLexer`, means a class in a module of pygments.
    """
    if ":" in name:
        kind = resolve_name(name)
    else:
        rules = [_rule(*row) for row in (*RULES[name], *RULES["Common"])]
        kind = type(name, (RegexLexer,), {"tokens": {"root": rules}})
    return kind(stripnl=False, ensurenl=False)


def _rule(pattern: str, *kinds: str) -> tuple[str, Any]:
    token, *more = map(string_to_tokentype, kinds)
    return pattern, bygroups(token, *more) if more else token
