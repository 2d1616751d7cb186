"""The names that the explorer's editor completes, and the text that the editor shows about a name under the pointer.

    {"name": "exp", "kind": "function", "written": "exp(x)", "doc": "e to the power x"}

The function `completions` reads the compiler's tables of operators and functions, and completions.toml. Each returned
row has a name that the editor can complete: a function, alias, dtype, constant, attribute or keyword. A test requires
that the compiler's tables and completions.toml have the same names.

The function `completions` does not return the names that the user's program defines. The page finds the user's own
names in the program's text (page/completion.js).
"""

from functools import cache

from minitri.base.operators import ALIASES, OPERATORS, REDUCTIONS, SCANS, Operator
from minitri.base.toml_tables import table_beside
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES, described, library_function, library_spans

TABLE: dict[str, dict[str, str]] = table_beside(__file__, "completions.toml")
# What each function that is not elementwise does.
MEANINGS: dict[str, str] = {
    **{name: row.doc for name, row in REDUCTIONS.items()},
    **{f"cumulative_{name}": REDUCTIONS[name].scan_doc for name in SCANS},
    **TABLE["function"],
}


def written(row: Operator) -> str:
    """Returns an example of an operator in a program, such as `x + y`, `-x` or `exp(x)`."""
    if not row.symbol:
        return f"{row.name}({', '.join('xyz'[: row.arity])})"
    return f"{row.symbol}x" if row.arity == 1 else f"x {row.symbol} y"


@cache
def completions() -> list[dict[str, str]]:
    library = {n: f"{library_function(n).span.text.partition('):')[0]})" for n in library_spans()}
    signatures = library | {name: described(name, s).strip("`") for name, s in SIGNATURES.items()}
    functions = {name: (written(row), row.doc) for name, row in OPERATORS.items()}
    functions |= {name: (signature, MEANINGS[name]) for name, signature in signatures.items()}
    aliases = {alias: functions[name] for alias, name in {**ALIASES, **FUNCTION_ALIASES}.items()}
    rows = [("function", name, *row) for name, row in {**aliases, **functions}.items()]
    rows += [(kind, name, "", doc) for kind in TABLE if kind != "function" for name, doc in TABLE[kind].items()]
    return [{"kind": kind, "name": name, "written": how, "doc": doc} for kind, name, how, doc in rows]
