"""The worker process that checks random programs, so that a crash or a hang of Triton's interpreter does not end the
whole session of random programs.

    python -m minitri.fuzz.worker cpu

In: seeds on standard input, one on each line. Out: one line of JSON for each seed on standard output. All other text
that the worker process prints goes to standard error. If the worker process can no longer use the GPU, its answer has
the field `lost`, and the parent process ends the worker.
"""

import sys
from typing import Any

from minitri.base.json_child_process import serve
from minitri.fuzz.failure_file import written
from minitri.fuzz.trial import is_lost, trial


def answer(seed: int, on: str) -> dict[str, Any]:
    """Returns the answer for one seed: how many comparisons were made, and the failure, if there is one, with the text
    of its file.
    """
    outcome = trial(seed, on)
    made: dict[str, Any] = {n: getattr(outcome, n) for n in ("stages", "pairs", "refused")}
    made |= {"seed": seed, "lost": is_lost(outcome)}
    if (case := outcome.case) is not None:
        made |= {"kind": case.kind, "said": case.said, "text": written(case, case.file)}
    return made


if __name__ == "__main__":
    serve(lambda seed: answer(seed, sys.argv[1]), sys.stdin)
