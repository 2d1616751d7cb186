"""Error messages for names of other libraries: `np.average(x)`, `x.median()`, `float32`.

In: the name, the library (if the program names one) and how the name is used. Out: a sentence with
what to write instead or why there is nothing, or "" for a name that no library has.
"""

from __future__ import annotations

from collections.abc import Sequence

from minitri.base.types import DTYPES
from minitri.language.foreign.names import LIBRARIES, METHODS, Foreign, rows

_ROOTS = {
    "np": "np", "numpy": "np", "cp": "np", "cupy": "np", "jnp": "jnp", "jax": "jnp", "torch": "torch", "F": "F",
    "nn": "modules", "math": "math", "mt": "np", "minitri": "np", "scipy": "special", "xp": "api", "random": "random",
    "special": "special", "linalg": "linalg", "lax": "jnp",
}  # fmt: skip
_PARTS = {"linalg": "linalg", "special": "special", "random": "random", "fft": "fft", "functional": "F", "numpy": "jnp"}
PREFIXES = frozenset(_ROOTS)
"""Names by which programs call libraries."""
_Found = tuple[str, Foreign]  # the library, and its row


def library(path: Sequence[str]) -> str:
    """The library that `torch.nn.functional` or `np` names. The path begins with one of `PREFIXES`."""
    if len(path) > 1 and path[-1] in _PARTS:
        return _PARTS[path[-1]]
    if path[-1] == "nn" and len(path) > 1:
        return "nn" if path[0] == "jax" else "modules"
    return _ROOTS[path[0]]


def prefixed(path: Sequence[str], name: str, count: int | None = None, keywords: Sequence[str] = ()) -> str:
    """The answer to `np.name`; `count` positional arguments if it is called, None if it is not."""
    of = library(path)
    return _answer(name, [(of, row) for row in rows(name, of)], count, keywords)


def called(name: str, count: int, keywords: Sequence[str] = (), *, method: bool = False) -> str:
    """The answer to `name(x, …)`, or to `x.name(…)`, where x is counted."""
    functions = [k for k in LIBRARIES if k not in METHODS]
    order = [*METHODS, *functions] if method else [*functions, *METHODS]
    return _answer(name, _any(name, order), count, keywords)


def value(name: str) -> str:
    """The answer to a name that is not called."""
    found = _any(name, list(LIBRARIES))
    return _answer(name, [pair for pair in found if not pair[1].arguments] or found, None, ())


def attribute(name: str) -> str:
    """The answer to `x.name`."""
    return _answer(name, _any(f".{name}", METHODS), None, ())


def _any(name: str, libraries: Sequence[str]) -> list[_Found]:
    """What these libraries have under a name, the first library first. The rows of `*` answer prefixes only."""
    found = [(of, row) for of in libraries for row in rows(name, of) if row.name != "*"]
    return [(of, row) for of, row in found if not (row.here and row.name == name)]


def _answer(name: str, found: Sequence[_Found], count: int | None, keywords: Sequence[str]) -> str:
    """The sentence for the first row that the call fits, else for the first."""
    if not found:
        return ""
    fitting = [pair for pair in found if count is None or pair[1].takes(count, keywords)]
    return _sentence(name, *(fitting or found)[0], called=count is not None)


def _sentence(name: str, of: str, row: Foreign, called: bool) -> str:
    note = f" ({row.note})" if row.note else ""
    if row.reason:
        return f"`{name if row.name == '*' else row.name}` of {LIBRARIES[of]} is not here: {row.reason}"
    if row.here and row.name == name:
        return f"`{row.instead}` is there without a prefix{note}"
    instead = f"astype(x, {row.instead})" if called and row.instead in DTYPES else row.instead
    return f"write `{instead}` for `{name if row.here else row.spelling}` of {LIBRARIES[of]}{note}"
