"""The recipes of docs/reference/recipes.md: each is carried out literally in a copy of the source.

The first line of a block in a recipe gives the place of its text:

    python FILE after: TEXT      below the one line of FILE that contains TEXT
    python FILE before: TEXT     above that line
    python FILE new              a new file
    sh recipe                    commands to run afterwards

The commands must succeed, and the tests that they name must exist: pytest fails if it selects no test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import pytest

pytest.importorskip("triton")
from documents import BLOCK, ROOT

PAGE = ROOT / "docs" / "reference" / "recipes.md"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
INSERTION = re.compile(r"^(?:python|toml|markdown) (?P<file>[\w./]+) (?:(?P<side>after|before): (?P<anchor>.+)|new)$")
SECONDS = 300


@dataclass(frozen=True)
class Insertion:
    """A text to insert at the `side` ("after" or "before") of the line that contains `anchor`. Both are None for a
    new file.
    """

    file: str
    side: str | None
    anchor: str | None
    text: str

    def apply(self, root: Path) -> None:
        """ValueError unless exactly one line of the file contains the anchor."""
        path = root / self.file
        if self.anchor is None:
            if path.exists():
                raise ValueError(f"{self.file} is there already")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text, encoding="utf-8")
            return
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        found = [k for k, line in enumerate(lines) if self.anchor in line]
        if len(found) != 1:
            raise ValueError(f"{len(found)} lines of {self.file} contain `{self.anchor}`")
        lines.insert(found[0] + (self.side == "after"), self.text)
        path.write_text("".join(lines), encoding="utf-8")


@dataclass(frozen=True)
class Recipe:
    insertions: tuple[Insertion, ...]
    commands: str


def recipes(page: str) -> dict[str, Recipe]:
    """The recipes of a page by the titles of their sections. A section without commands is not a recipe."""
    _, *parts = SECTION.split(page)
    found = {title: recipe(text) for title, text in zip(parts[::2], parts[1::2])}
    return {title: r for title, r in found.items() if r.commands}


def recipe(section: str) -> Recipe:
    blocks = [(m["info"], m["text"]) for m in BLOCK.finditer(section)]
    placed = [(INSERTION.match(info), text) for info, text in blocks]
    insertions = tuple(Insertion(m["file"], m["side"], m["anchor"], text) for m, text in placed if m)
    return Recipe(insertions, "".join(text for info, text in blocks if info == "sh recipe"))


def copy_of_the_source(to: Path) -> None:
    """The files that git tracks or would track, and what Python has compiled of them."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        compiled = [cache_from_source(name)] if name.startswith("minitri") and name.endswith(".py") else []
        for file in [name, *compiled]:
            if (ROOT / file).is_file():
                (to / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, to / file)  # Python uses what it has compiled if the time is the same


RECIPES = recipes(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_works_literally(title: str, tmp_path: Path) -> None:
    copy_of_the_source(tmp_path)
    for insertion in RECIPES[title].insertions:
        insertion.apply(tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PATH": path, "PYTEST_ADDOPTS": "-m 'not gpu'"}
    command = ["bash", "-ec", RECIPES[title].commands]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout), done.stdout[-2000:]


def test_every_recipe_is_found() -> None:
    """A block with an unknown place would otherwise be ignored."""
    wanted = {"elementwise operator", "reduction", "scan", "graph rule", "pass", "schedule rule", "chip"}
    assert {title.split(" ", 1)[1] for title in RECIPES} >= wanted
    for title, found in RECIPES.items():
        assert any(i.anchor is None for i in found.insertions), f"{title} adds no test"
    placed = re.findall(r"^```\w+ [\w./]+ (?:after|before|new)\b", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(placed) == sum(len(r.insertions) for r in RECIPES.values())


def test_a_missing_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 2\n")
    Insertion("a.py", "after", "1", "y = 3\n").apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 3\nx = 2\n"
    for anchor, count in (("x", 2), ("z", 0)):
        with pytest.raises(ValueError, match=f"^{count} lines of a.py"):
            Insertion("a.py", "after", anchor, "y = 3\n").apply(tmp_path)
    with pytest.raises(ValueError, match="there already"):
        Insertion("a.py", None, None, "").apply(tmp_path)
