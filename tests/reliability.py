"""Reports how much the compiler has been tested: writes docs/log/reliability.md from measured figures.

    python tests/reliability.py [SECTION ...] [--budget 30m] [--jobs 2]     runs sections (by default all but GPU ones)
    python tests/reliability.py --page                                      writes the pages from the figures

In: docs/log/reliability.json, which has a dictionary for each section. A run replaces the figures of its sections.
Out: the same file, and the pages docs/log/reliability.md and docs/log/survivors.md. tests/test_docs.py requires that
the pages follow from the figures. A section has two functions: one of tests/figures.py runs an experiment and returns
figures, and one of this file writes them as Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures as run
from figures import Figures, Options
from markdown_tables import markdown_table

from minitri.cli.main import duration

ROOT = Path(__file__).parent.parent
FIGURES, PAGE = ROOT / "docs" / "log" / "reliability.json", ROOT / "docs" / "log" / "reliability.md"
LIST = ROOT / "docs" / "log" / "survivors.md"


@dataclass(frozen=True)
class Section:
    """`usual`: whether it runs if no section is named."""

    title: str
    run: Callable[[Options], Figures]
    said: Callable[[Figures], str]
    usual: bool = True


# ---- figures as Markdown -----------------------------------------------------------------


def describe_fuzzing(f: Figures) -> str:
    rows = [
        ("random programs", f"{f['programs']:,}"), ("stages compared with the reference", f"{f['stages']:,}"),
        ("pairs of programs compared with each other", f"{f['pairs']:,}"),
        ("disagreements", f"{len(f['disagreements']):,}"),
    ]  # fmt: skip
    where = f"{f['seconds'] / 60:.1f} minutes in {f['jobs']} processes, from seed {f['seed']}. {f['hardware']}; {f['versions']}."
    return f"{where}\n\n{markdown_table(('', ''), rows)}"


def describe_coverage(f: Figures) -> str:
    rows = [(group, str(len(counts)), f"{min(counts.values())} ({min(counts, key=counts.__getitem__)})",
             f"{max(counts.values())} ({max(counts, key=counts.__getitem__)})") for group, counts in f.items()]  # fmt: skip
    return markdown_table(("constructs of 2,000 programs", "how many", "the rarest is in", "the commonest is in"), rows)


def describe_checks(f: Figures) -> str:
    wrong = ", ".join(f["wrong"]) or "none"
    return f"{f['programs']} programs, {f['rows']:,} stages of passes compared with the reference; wrong: {wrong}.\n"


def describe_plants(f: Figures) -> str:
    return f"{f['planted']} planted, {f['noticed']} noticed, {f['named']} with the right pass named.\n"


def describe_conditions(f: Figures) -> str:
    return (
        "Conditions of up to three comparisons of positions, under every reduction, with blocks of 1 to 8, at sizes of 0\n"
        f"to 17: {f['configurations']:,} configurations by numpy and by `tile.masked`, of which {f['with a block left out']:,} leave out\n"
        f"blocks; wrong: {len(f['wrong']) or 'none'}. `python tests/sweep_conditions.py` draws them: {f['seconds'] / 60:.0f} minutes, {f['where']}.\n"
    )


def describe_gpu_conditions(f: Figures) -> str:
    return (
        "The same with default options, sizes of up to 10,000 and six dtypes, against numpy in f64:\n"
        f"{f['cases']:,} cases, wrong: {len(f['wrong']) or 'none'}. `python tests/grid_conditions.py` draws them: {f['seconds']:.0f} s, {f['where']}.\n"
    )


def describe_rewrites(f: Figures) -> str:
    rows = [(f"`{n}`", f"{r['programs']:,}", f"{r['fired']:,}", str(len(r["wrong"]))) for n, r in f.items()]
    return (
        "Random programs with and without one rewrite, its thresholds lowered so that it fires at small sizes. Both\n"
        "stages are run and compared, and `check` compares all others (`python tests/each_rewrite.py`).\n\n"
        + markdown_table(("rewrite", "programs", "in which it fired", "wrong"), rows)
    )


def describe_mutation(f: Figures) -> str:
    """`run` counts the mutants that ran. It is smaller than the number of mutants of the file if they were sampled."""
    f = {file: row for file, row in f.items() if row["run"]}
    rows = [
        (f"`{file}`", *(str(row[k]) for k in ("mutants", "run", "killed", "equivalent")), f"{row['score']}%")
        for file, row in f.items()
    ]
    return f"{MUTATION}\n{markdown_table(('file', 'mutants', 'run', 'killed', 'equivalent', 'score'), rows)}"


def survivors(figures: Figures) -> str:
    """docs/log/survivors.md: each mutant that no test has noticed, by file and reason."""
    parts = [SURVIVORS]
    for file, row in figures.get("mutation", {}).items():
        counting, same = (_by_reason(file, row[kind]) for kind in ("survivors", "same"))
        left = f"{len(row['survivors'])} of {row['run']} that were run survive and count:" if counting else ""
        nothing = "These change nothing, and do not count:" if same else ""
        parts += [
            f"## `{file}`\n",
            *(f"{said}\n\n{blocks}" for said, blocks in ((left, counting), (nothing, same)) if blocks),
        ]
    return "\n".join(parts)


def _by_reason(file: str, rows: list[dict[str, Any]]) -> str:
    """A block for each reason, in the order of their lines."""
    reasons = dict.fromkeys(m["why"] for m in rows)
    blocks = [(why, "\n".join(_diff(file, m) for m in rows if m["why"] == why)) for why in reasons]
    return "\n".join(f"{why or 'Not looked into'}:\n\n```diff\n{diff}\n```\n" for why, diff in blocks)


def _diff(file: str, mutant: dict[str, Any]) -> str:
    marked = ((sign, line) for sign, lines in (("-", "was"), ("+", "now")) for line in mutant[lines].splitlines())
    return "\n".join([f"@@ {file}:{mutant['line']} @@", *(f"{sign} {line}" for sign, line in marked)])


def describe_hostility(f: Figures) -> str:
    outcomes = ", ".join(f"{n:,} {name}" for name, n in sorted(f["outcomes"].items()))
    return f"{f['inputs']:,} inputs: {outcomes}; {f['faults']} faults.\n"


def describe_compiles(f: Figures) -> str:
    failed = ", ".join(f["failed"]) or "none"
    targets = ", ".join(f"`{t}`" for t in f["targets"])
    return f"{f['programs']} programs for {targets}: {f['kernels']:,} kernels, for any sizes; failed: {failed}.\n"


def describe_proofs(f: Figures) -> str:
    c = f["claims"]
    return (
        f"{f['programs']} programs, with the schedules of the interpreter and of a GPU, for known sizes and for\n"
        f"any: {c['in bounds']:,} accesses proven to stay inside of their arrays;\n"
        f"{c['needed']:,} tests of masks, each with an example of what happens without it; {f['left out']:,} tests left out, each\n"
        f"with the reason; {c['written once']:,} outputs proven to be written once. Open: {len(f['open'])}.\n"
    )


def describe_shapes(f: Figures) -> str:
    return (
        f"{f['templates']} templates with {f['schedules']} sets of blocks, at every combination of sizes from 0 to twice the block and\n"
        f"one: {f['configurations']:,} configurations run by the sanitizer, and compared bit for bit; wrong: {len(f['wrong'])}.\n"
    )


def describe_traps(f: Figures) -> str:
    return f"{f['rows']} rows, at every stage and in every schedule: {f['passed']} tests pass, {f['failed']} fail.\n"


def describe_branches(f: Figures) -> str:
    rows = [
        (f"`minitri/{part}`", str(n["branches"]), f"{100 * n['taken'] / n['branches']:.1f}%") for part, n in f.items()
    ]
    every = [sum(n[key] for n in f.values()) for key in ("branches", "taken")]
    rows.append(("all of these", str(every[0]), f"{100 * every[1] / every[0]:.1f}%"))
    return markdown_table(("branches of", "how many", "taken by the tests that need no GPU"), rows)


def describe_rounding(f: Figures) -> str:
    rows = [(f"`{name}`", f"{r['found']:.2f}", f"{r['bound']:.1f}") for name, r in f["rows"].items()]
    where = f"f32 on {f['where']}, {f['values']:,} values of each argument, from the whole range, denormals too."
    return f"{where}\n\n{markdown_table(('operator', 'largest error, ulp', 'bound'), rows)}"


SECTIONS: dict[str, Section] = {
    "examples": Section("Examples and the library at every pass", run.checked, describe_checks),
    "fuzz": Section("Random programs", run.fuzzed("cpu", 1_000_000), describe_fuzzing),
    "fuzz-gpu": Section("Random programs on a GPU", run.fuzzed("gpu", 2_000_000), describe_fuzzing, usual=False),
    "coverage": Section("What random programs consist of", run.covered, describe_coverage),
    "mutants": Section("Planted bugs", run.planted, describe_plants),
    "mutation": Section("Mutation testing", run.mutated, describe_mutation),
    "conditions": Section("Blocks left out by conditions", run.conditioned, describe_conditions),
    "conditions-gpu": Section(
        "Conditions on positions on a GPU", run.conditioned_on_gpu, describe_gpu_conditions, usual=False
    ),
    "rewrites": Section("Each rewrite alone", run.rewritten, describe_rewrites, usual=False),
    "compiled": Section("Compiled ahead of time", run.compiled, describe_compiles),
    "proofs": Section("Accesses proven", run.proven, describe_proofs),
    "shapes": Section("Small shapes, all of them", run.enumerated, describe_shapes),
    "traps": Section("The trap catalogue", run.trapped, describe_traps),
    "ulp": Section("Rounding in the interpreter", run.swept("cpu"), describe_rounding),
    "ulp-gpu": Section("Rounding on a GPU", run.swept("gpu"), describe_rounding, usual=False),
    "branches": Section("Branch coverage", run.branched, describe_branches),
    "hostile": Section("Hostile input", run.hostile, describe_hostility),
}
MUTATION = """\
A mutant is a small change of the compiler, made by an operator of Cosmic Ray. Each mutant runs against the programs of
`tests/oracle_quick.py` and the tests that `tests/mutation.py` names, as far as they run its line.

*run* is the number of mutants that have been tried. If it is less than the number that the present source has, it is a
sample. A file that is not in the table has not been tried. A survivor has met some of these programs and tests, but not
always all of them, so the true score is at least this high. Mutants that change nothing do not count.
[survivors.md](survivors.md) lists each survivor with its place and the reason why it survives.
"""
SURVIVORS = """\
# What no test has noticed

<!-- Made by `python tests/reliability.py` from reliability.json. Do not edit. -->

This page lists the mutants of [reliability.md](reliability.md#mutation-testing-mutation) that survive, by file and
reason. The reasons come from `tests/mutation_survivors.toml`. Mutants that change nothing are in
`tests/mutation_equivalent.toml`.

Most survivors are in one of three kinds of code. Some code chooses between two right ways, of which one is slower. Some
writes the text of the ledger. Some guards against input that no text can make.
"""
HEAD = """\
# Reliability

<!-- Made by `python tests/reliability.py` from reliability.json. Do not edit. -->

What has been tried on the compiler, and what came of it. [Semantics](../reference/semantics.md#what-check-compares) says
what `check` compares, and [running a stage](../learn/checking.md#running-a-stage) how stages run.

- `minitri check FILE` runs every pass of one program at ragged sizes, for the interpreter and for a GPU's schedules. It
  names the first pass that is wrong, with the smallest call that shows it.
- `minitri fuzz --budget 10m -o DIR` does so for random programs. Each is also compared with programs that must compute
  the same: without an optional pass, with operands of commutative operators exchanged, with dead code, with other names.
  Programs run in separate processes, so a crash or a hang is a finding. A failing program is shrunk and saved as one
  file. `minitri fuzz --replay FILE` runs it again.
- `minitri.testing` makes the random programs, also for your own tests:

  ```python excerpt
  from hypothesis import given, strategies as st
  from minitri.testing import arrays, programs

  @given(programs(max_ops=6), st.integers(0, 99))
  def test(example, seed):
      assert example.compile().check(*example.arguments(seed)).ok
  ```

`make full` draws 200 examples for every operator or function and dtype, at every stage. Its tests of operators and
functions (`tests/test_operators.py`, `tests/test_functions.py`) took 6 minutes on 16 cores: 1,474 passed (x86_64,
Python 3.12.3, numpy 2.5.2, triton 3.6.0).

`python tests/reliability.py` makes all figures of this page again, except those of a GPU.
`python tests/reliability.py fuzz --budget 30m` makes the figures of one section, whose name is in its title. `fuzz-gpu`,
`conditions-gpu` and `ulp-gpu` need a GPU; `rewrites` takes hours. `make reliability` is the long profile. It also runs
the slow tests and the mutants that have not been tried.

Figures of random programs that are older than `minitri/testing/statement_forms.toml` keep their seeds. Commit
0bec0e1 draws the programs of these seeds.

**Trusted parts:** numpy, which defines what a program means and computes for the interpreter; lark, which parses by the
grammar; Triton with its interpreter; and on a GPU NVIDIA's assembler and math library. z3 only confirms proofs, which
are also checked without it.
"""


def page(figures: Figures) -> str:
    """docs/log/reliability.md."""
    parts = [f"## {s.title} (`{name}`)\n\n{s.said(figures[name])}" for name, s in SECTIONS.items() if name in figures]
    return "\n".join([HEAD, *parts])


def known() -> Figures:
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the figures of docs/log/reliability.md.")
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], metavar="SECTION")
    parser.add_argument("--budget", default="30m", help="of each section of random programs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", action="store_true", help="write the page, run nothing")
    given = parser.parse_args()
    options = Options(duration(given.budget), given.jobs)
    wanted = [] if given.page else given.sections or [n for n, s in SECTIONS.items() if s.usual]
    for name in wanted:
        start = time.monotonic()
        found = SECTIONS[name].run(options)
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
        FIGURES.write_text(json.dumps({**known(), name: found}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(known()), encoding="utf-8")
    LIST.write_text(survivors(known()), encoding="utf-8")


if __name__ == "__main__":
    main()
