"""Reads the tables that stand beside a module, in TOML files: operators.toml, error_codes.toml and others."""

import tomllib
from pathlib import Path
from typing import Any


def table_beside(module: str, name: str) -> dict[str, Any]:
    """The table in the file `name`, in the folder of a module. `module` is the module's `__file__`."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))
