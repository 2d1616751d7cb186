"""Stores the LALR tables of a grammar on the disk, for later processes.

The function `parser` takes the path of a grammar file, and options of lark (a parser library). The result is lark's
parser for the grammar. Making the LALR tables of a grammar takes about 100 ms, but reading stored tables takes only 5
ms. The LALR tables are stored as JSON (minitri/base/json_disk_cache.py), in the format of `lark.tools.serialize`.
Lark's own cache is not used, because it is a pickle, and loading a pickle can execute code. If the grammar or the
version of lark has changed since the tables were stored, minitri makes new tables.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from minitri.base import json_disk_cache
from minitri.language.parser import lark_parser


def parser(path: Path, start: Sequence[str], lexer: str, **callables: Any) -> Any:
    """Returns the LALR parser of a grammar file. The keyword arguments `transformer` and `postlex` are passed to the
    parser library lark.
    """
    import lark
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    grammar = path.read_text(encoding="utf-8")
    key = {"lark": lark.__version__, "grammar": hashlib.sha256(grammar.encode()).hexdigest(), "lexer": lexer}
    if (tables := json_disk_cache.get("grammar", key, _numbered)) is not None:
        with suppress(Exception):  # another version of lark may raise any error
            return lark.Lark._load_from_dict(tables["data"], tables["memo"], **callables)
    made = lark_parser(path, start, lexer, **callables)
    data, memo = made.memo_serialize([TerminalDef, Rule])
    data["options"] = {n: v for n, v in data["options"].items() if n not in callables}  # each call gives them again
    json_disk_cache.put("grammar", key, {"data": data, "memo": memo})
    return made


def _numbered(table: dict[str, Any]) -> dict[int | str, Any]:
    """Returns a table from JSON, with keys such as "12" replaced by integers."""
    # JSON allows only text as keys.
    return {int(key) if key.isdecimal() else key: value for key, value in table.items()}
