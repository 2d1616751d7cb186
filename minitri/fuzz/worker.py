"""The worker process that checks random programs, so that a crash or a hang of Triton's interpreter does not end the
session.

    python -m minitri.fuzz.worker cpu

In: seeds on standard input, one on each line. Out: one line of JSON for each seed on standard output. All other printed
text goes to standard error. A worker process that can no longer use the GPU answers with "lost" and ends.
"""

import json
import os
import sys
from typing import Any, TextIO

from minitri.fuzz.failure_file import written
from minitri.fuzz.trial import Outcome, is_lost, trial


def answer(seed: int, outcome: Outcome) -> dict[str, Any]:
    """Returns the answer for one seed: counts, and the failure with the text of its file."""
    made: dict[str, Any] = {n: getattr(outcome, n) for n in ("stages", "pairs", "refused")}
    made |= {"seed": seed, "lost": is_lost(outcome)}
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
