"""The process in which programs run, so that a crash or a hang of the interpreter is a finding.

    python -m minitri.fuzz.worker cpu

In: seeds, one a line, on standard input. Out: one line of JSON for each on standard output, which
nothing else may write to: whatever is printed goes to standard error. A process that has lost its GPU says so
("lost") and ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from minitri.fuzz.files import written
from minitri.fuzz.trial import Outcome, is_lost, trial


def answer(seed: int, outcome: Outcome) -> dict[str, Any]:
    """What the other process receives: figures, and the failure as the text of its file."""
    made: dict[str, Any] = {"seed": seed, "stages": outcome.stages, "pairs": outcome.pairs, "lost": is_lost(outcome)}
    made |= {"refused": outcome.refused} if outcome.refused else {}
    if outcome.case is not None:
        kind = (outcome.case.relation or outcome.case.guilty).replace(": ", "-").replace(" ", "-")
        name = f"seed-{seed}-{kind}.mt"
        made |= {"kind": kind, "said": outcome.case.said, "file": name, "text": written(outcome.case, name)}
    return made


def main(on: str, seeds: TextIO) -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in seeds:
        seed = int(line)
        outcome = trial(seed, on)
        out.write(json.dumps(answer(seed, outcome)) + "\n")
        out.flush()
        if is_lost(outcome):
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin)
