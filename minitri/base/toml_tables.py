"""Reads the tables in TOML files beside a Python module: operators.toml, error_codes.toml and others."""

import tomllib
from pathlib import Path
from typing import Any


def table_beside(module: str, name: str) -> dict[str, Any]:
    """Returns the content of the TOML file `name` in the folder of a module. The argument `module` is the path of the
    module's file (`__file__`).
    """
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))
