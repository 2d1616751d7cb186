"""LALR tables of a grammar, kept on the disk between processes.

In: the path of a grammar and lark's options. Out: a lark parser. It takes about 100 ms to make the tables and 5 ms to
read them. They are JSON (minitri/base/json_disk_cache.py), in the form of `lark.tools.serialize`. lark's own cache is a
pickle, so it is not used. Tables that do not fit, from another version of lark for example, are made again.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minitri.base import json_disk_cache
from minitri.language.parser import lark_parser

CALLABLE = ("transformer", "postlex")  # options that are code, and given anew each time


def parser(path: Path, start: Sequence[str], lexer: str, **callables: Any) -> Any:
    """The LALR parser of a grammar file. `callables`: lark's `transformer` and `postlex`."""
    import lark

    grammar = path.read_text(encoding="utf-8")
    key = {"lark": lark.__version__, "grammar": hashlib.sha256(grammar.encode()).hexdigest(), "lexer": lexer}
    kept = json_disk_cache.get("grammar", key)
    if kept is not None:
        try:
            return _load(kept, callables)
        except Exception:  # whatever another lark says to it
            pass
    made = lark_parser(path, start, lexer, **callables)
    json_disk_cache.put("grammar", key, _dump(made))
    return made


def _dump(made: Any) -> Any:
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    data, memo = made.memo_serialize([TerminalDef, Rule])
    data["options"] = {n: v for n, v in data["options"].items() if n not in CALLABLE}
    return {"data": data, "memo": memo}


def _load(kept: Any, callables: dict[str, Any]) -> Any:
    from lark import Lark

    tables = _numbered(kept)
    return Lark._load_from_dict(tables["data"], tables["memo"], **callables)


def _numbered(value: Any) -> Any:
    """The value with integer keys. JSON has only text as keys."""
    if isinstance(value, dict):
        return {int(k) if k.isdecimal() else k: _numbered(v) for k, v in value.items()}
    return [_numbered(v) for v in value] if isinstance(value, list) else value
