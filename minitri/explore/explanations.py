"""A sentence about each pane and each common word of the page, for the guided walk, the tooltips and the status line.

    tile       "… no longer has whole arrays: each program of a grid loads tiles, …"
    tl.load    "reads a tile from memory; where the mask is false it reads nothing"

The table `ABOUT` explains each pane. The function `words_of` takes the name and the text of each stage of a program. It
returns a line of explanation for each known name in the stages. The texts of the explanations are in stages.toml and
explanations.toml. The file page/text.js finds the word under the pointer.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from minitri.base.toml_tables import table_beside

ABOUT: Mapping[str, str] = table_beside(__file__, "stages.toml")
WORDS: dict[str, dict[str, str]] = table_beside(__file__, "explanations.toml")
LANGUAGE = WORDS.pop("languages")  # of a stage; the language of our stages is "ours"


def words_of(stages: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Returns explanations of the names in the stages, grouped by language. In the result, the value for "ptx" is a
    dict from names in the stage `ptx` to explanations.

    Under the key "terms", the result explains technical terms such as `tile`. The guided walk (guided_walk.py) uses
    these explanations.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for stage in stages:
        words = set(re.findall(r"[A-Za-z_][\w.]*", stage.get("text", "")))
        found[LANGUAGE.get(stage["name"], "ours")].update(*map(_prefixes, words))
    lines = {name: {word: WORDS[name][word] for word in WORDS[name] if word in used} for name, used in found.items()}
    return lines | {"terms": dict(WORDS["terms"])}


def _prefixes(word: str) -> Iterable[str]:
    """Yields a name and its shorter prefixes, such as `ld.global.v4`, `ld.global` and `ld`."""
    while word:
        yield word
        word = word[: max(word.rfind("."), word.rfind("_"), 0)]
