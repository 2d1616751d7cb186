"""Warns, at compile time, of requirements that the sizes of each later call must satisfy.

    x + b      f32[M, N] + f32[K]      ShapeWarning: `x + b` needs K == N at every call

A condition of a graph is a relation between sizes, such as K == N, that each call must satisfy. The function
`requirements` takes the conditions of a graph. It yields a warning for each pair of named sizes that must be equal. If
two dimensions must be equal but have different names, the program is often wrong. Conditions with arithmetic, such as N
% 4 == 0, cause no warning, because the author of the program probably intends them.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator

from minitri.base.diagnostics import ShapeWarning, printable
from minitri.base.spans import Span
from minitri.base.tracebacks import PACKAGE
from minitri.graph.ir import Condition


def requirements(conditions: Iterable[Condition]) -> Iterator[tuple[Span, str]]:
    """Yields a warning for each pair of named sizes that an operator requires to be equal.

    A warning is a range of the source text (span) and a sentence.
    """
    for c in conditions:
        names = str(c.left), str(c.right)
        if c.code in ("MT0201", "MT0203") and c.relation == "==" and all(n.isidentifier() for n in names) and c.span:
            text = " ".join(printable(c.span.text).split())
            shown = f"`{text}`" if len(text) <= 60 else f"the expression at {c.span}"
            also = "; `.T` reverses all axes, `.mT` swaps the last two" if ".T" in text and c.code == "MT0203" else ""
            yield c.span, f"{shown} needs {names[0]} == {names[1]} at every call; give one dimension one name{also}"


def warn_of_requirements(conditions: Iterable[Condition]) -> None:
    """Warns of requirements that the sizes of each later call must satisfy. The warning points at the line of the
    user's code that compiles the program, not at a line of minitri.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    for _, sentence in requirements(conditions):
        warnings.warn(sentence, ShapeWarning, stacklevel=level)
