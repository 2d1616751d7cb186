"""minitri: a mini-compiler from a small numpy-like array language to Triton.

    import minitri as mt
    f = mt.compile("softmax(x, axis=-1)", x="f32[M, N]")
    f(x)

The stub file __init__.pyi lists the public names, and the module that defines each name. Type checkers and this module
read the stub file. Importing minitri is fast, because a module is imported only when one of its public names is first
used. For example, numpy, lark, networkx, triton and torch are imported only when the first program needs them.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_STUB = Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
_HOME_OF = {name: home for home, name in re.findall(r"^from (minitri\S+) import (\w+)", _STUB, re.MULTILINE)}
__all__ = [*_HOME_OF, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'minitri' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """Registers the cell magic `%%minitri` when a notebook runs `%load_ext minitri`."""
    from minitri.notebook.magic import load

    load(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
