"""Prints the tables of `minitri bench` again, from the JSON file that it wrote.

    python tests/bench_report.py docs/log/benchmarks.json

In: the file of a complete or an interrupted run. The run may also be one of random programs (`--random`).
Out: the tables that the run printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from minitri.bench.call_costs import Table
from minitri.bench.result_tables import Peer, Row, distribution, report


def from_dict(found: Mapping[str, Any]) -> Row:
    """The row from a dictionary that `as_dict` made."""
    made = {f.name: found[f.name] for f in fields(Row) if f.name in found}
    made |= {side: {name: Peer(**p) for name, p in found[side].items()} for side in ("peers", "beside")}
    return Row(**made)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("one file is wanted, which `minitri bench --json` has written")
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rows = [from_dict(c) for c in found["cases"]]
    if "random" in found:
        return print(distribution(rows, [from_dict(c) for c in found["shrunk"]], found))
    if "copy_bytes_per_second" not in found:
        raise SystemExit("these figures are not of a GPU")
    print(report(rows, found))
    if "host" in found:
        print("", *(Table(**t) for t in found["host"]), sep="\n")


if __name__ == "__main__":
    main()
