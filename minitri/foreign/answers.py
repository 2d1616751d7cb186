"""What to say about a name of another library: `np.average(x)`, `x.median()`, `float32`.

In: the name, the library (if the program names one) and how the name is used. Out: a sentence with
what to write instead or why there is nothing, or "" for a name that no library has.
"""

from __future__ import annotations

from collections.abc import Sequence

from minitri.foreign.names import LIBRARIES, METHODS, Foreign, rows
from minitri.types import DTYPES

_ROOTS = {
    "np": "np", "numpy": "np", "cp": "np", "cupy": "np", "jnp": "jnp", "jax": "jnp", "torch": "torch", "F": "F",
    "nn": "modules", "math": "math", "mt": "np", "minitri": "np", "scipy": "special", "xp": "api", "random": "random",
    "special": "special", "linalg": "linalg", "lax": "jnp",
}  # fmt: skip
_PARTS = {"linalg": "linalg", "special": "special", "random": "random", "fft": "fft", "functional": "F", "numpy": "jnp"}
PREFIXES = frozenset(_ROOTS)
"""Names by which programs call libraries."""


def library(path: Sequence[str]) -> str:
    """The library that `torch.nn.functional` or `np` names. The path begins with one of `PREFIXES`."""
    if len(path) > 1 and path[-1] in _PARTS:
        return _PARTS[path[-1]]
    if path[-1] == "nn" and len(path) > 1:
        return "nn" if path[0] == "jax" else "modules"
    return _ROOTS[path[0]]


def prefixed(path: Sequence[str], name: str, count: int | None = None, keywords: Sequence[str] = ()) -> str:
    """The answer to `np.name`; `count` positional arguments if it is called, None if it is not."""
    return _answer(rows(name, [library(path)]), count, keywords)


def called(name: str, count: int, keywords: Sequence[str] = (), *, method: bool = False) -> str:
    """The answer to `name(x, …)`, or to `x.name(…)`, where x is counted."""
    order = [k for k in LIBRARIES if k not in METHODS]
    return _answer(_any(name, [*METHODS, *order] if method else [*order, *METHODS]), count, keywords)


def value(name: str) -> str:
    """The answer to a name that is not called."""
    found = _any(name, list(LIBRARIES))
    return _answer([row for row in found if not row.arguments] or found, None, ())


def attribute(name: str) -> str:
    """The answer to `x.name`."""
    return _answer(rows(f".{name}", METHODS), None, ())


def _any(name: str, libraries: Sequence[str]) -> list[Foreign]:
    """The rows of a name in all these libraries, theirs first that stand first. `*` stands for no name alone."""
    found = [row for library in libraries for row in rows(name, [library]) if row.name != "*"]
    return [row for row in dict.fromkeys(found) if not row.here]


def _answer(found: Sequence[Foreign], count: int | None, keywords: Sequence[str]) -> str:
    if not found:
        return ""
    fitting = [row for row in found if count is None or row.takes(count, keywords)]
    return _sentence((fitting or found)[0], called=count is not None)


def _sentence(row: Foreign, called: bool) -> str:
    of = LIBRARIES[row.libraries[0]]
    if row.reason:
        what = f"{of}" if row.name == "*" else f"`{row.name}` of {of}"
        return f"{what} is not here: {row.reason}"
    note = f" ({row.note})" if row.note else ""
    if row.here:
        return f"`{row.instead}` is there without a prefix{note}"
    instead = f"astype(x, {row.instead})" if called and row.instead in DTYPES else row.instead
    return f"write `{instead}` for `{row.spelling}` of {of}{note}"
