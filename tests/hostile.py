"""Tests the compiler with hostile input: each of thousands of texts must give a diagnostic or a program.

    python tests/hostile.py --count 100000            prints how many of each kind were tried, with their verdicts
    python tests/hostile.py --count 1000 --kind bytes --seed 7

In: a seed. Out: a verdict for each input. A `Fault` reports another exception than CompileError, a
warning, a time-out, or a diagnostic that would write control characters to a terminal. The one idea:
each kind of input is a short function of a random generator. So the kind and the number of a fault
are enough to make it again.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from corrections import corrected

import minitri as mt
from minitri.base.diagnostics import CompileError, ParseError
from minitri.graph.unknown_names import function_names
from minitri.language.parser import parse_type
from minitri.language.program_forms import is_module, parse_program

ROOT = Path(__file__).parent.parent
SECONDS = 10.0  # of CPU time for one input; the compiler's own limit is a quarter of it
TYPES = {"x": "f32[M, N]", "w": "f16[N, K]", "y": "i32[M]", "b": "bool[M, N]", "s": "float", "q": "bf16[*B, D]"}
FUNCTIONS = sorted(function_names())
WORDS = """
    ( ) [ ] { } , : ; . ... + - * / // % ** @ ~ & | ^ << >> < > <= >= == != = := -> => <> ! ? $ ` \\ # ' " \"\"\" 0 1 2 3
    1.5 1e9 1e400 .5 0x1F 0b2 1_000 2**63 9223372036854775808 18446744073709551616 1e-5 1j True False None inf nan pi e
    def return if else for in while lambda and or not is import from class with try pass assert yield await async del
    x w y b s q M N K B D f g f32 f16 i8 u64 bool float int axis keepdims dim shape T mT ndim *B *args **kw
""".split()
TRICKS = [
    "\0", "\x1b[31m", "\x1b]0;t\x07", "\x9b2J", "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u00a0", "\u3000", "\u2028",
    "\x85", "\x0b", "\x0c", "\r", "\t", "ｘ", "（", "）", "＋", "１", "é", "e\u0301", "a" + "\u0301" * 50, "ﬁ", "ſ", "K", "𝐱", "٣", "²",
    "😀", "\ud800", "\udfff", "\U0010ffff", "\ufffe", "İ", "×", "−", "‘", "∞", "<script>", "'''", "\\\n", "\\N{DIGIT ONE}", "%s", "{x}",
    "${x}", "`id`", "__import__('os')", "x.__class__", "../../x", "\n    ", "\n\t", "\n", "# \x1b[2J", "x\u0338", "x\ufe0f",
]  # fmt: skip
BRACKETS = [("(", ")"), ("[", "]"), ("x[", "]"), ("relu(", ")"), ("-", ""), ("~", ""), ("+", ""), ("not ", ""), ("(x,", ")"), ("x**", "x"),
            ("x if True else ", "x"), ("sum(", ")"), ("x + (", ")"), ("(", ") + x"), ("x[", ":]"), ("M//(", "+1)"), ("zeros((", ",))"),
            ("{", "}"), ("lambda: ", ""), ("x@", "x"), ("1<", "2"), ("x.T", ""), ("'", "'"), ('"""', ""), ("(x)[", "]"), ("stack((", ",))"),
            ("exp(x + ", ")"), ("maximum(x, ", ")"), ("concat((x, ", ",))"), ("x[::2][", "]"), ("pad(", ", 1)"), ("(x).sum(", ")")]  # fmt: skip


class Fault(AssertionError):
    """The compiler answered an input with neither a diagnostic nor a program."""


@dataclass(frozen=True)
class Input:
    """A program, or the type of one parameter."""

    text: str
    types: tuple[tuple[str, str], ...] = ()


# ---- inputs ----------------------------------------------------------------------------


def corpus() -> list[str]:
    """Valid programs: the examples, the library, and the programs of the documents."""
    files = [*sorted((ROOT / "examples").glob("*.mt")), *sorted((ROOT / "minitri" / "library").glob("*.mt"))]
    texts = [path.read_text(encoding="utf-8") for path in files]
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        texts += re.findall(
            r"^```python module[^\n]*\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    return texts


CORPUS = corpus()


def of_expression(text: str) -> Input:
    return Input(text, tuple((n, t) for n, t in TYPES.items() if re.search(rf"\b{n}\b", text)))


def random_bytes(r: random.Random) -> Input:
    data = bytes(r.choices(range(256), k=r.randrange(60)))
    return of_expression(data.decode(r.choice(("latin-1", "utf-8")), "surrogateescape"))


def words(r: random.Random) -> Input:
    text = r.choice((" ", " ", "")).join(r.choices([*WORDS, *FUNCTIONS[:: r.randrange(1, 9)]], k=r.randrange(1, 40)))
    if r.random() < 0.3:
        return Input("def f(x: f32[M, N], y: i32[M]):\n    " + text.replace(";", "\n    "))
    return of_expression(text)


def expression(r: random.Random, depth: int) -> str:
    """A text that parses. Most of these texts have type errors."""
    if depth <= 0 or r.random() < 0.15:
        return r.choice(
            [
                "x",
                "x",
                "w",
                "y",
                "b",
                "s",
                "q",
                "M",
                "N",
                "1",
                "2.5",
                "0",
                "-1",
                "inf",
                "f32",
                "i8",
                "None",
                "True",
                "10**18",
                "2**70",
            ]
        )
    e = lambda: expression(r, depth - 1)  # noqa: E731
    kind = r.randrange(10)
    if kind < 3:
        return f"({e()} {r.choice('+ - * / // % ** @ & | ^ << >> < <= == !='.split())} {e()})"
    if kind < 6:
        args = [e() for _ in range(r.choice((1, 1, 2, 2, 3)))]
        args += [f"{r.choice(('axis', 'dim', 'keepdims', 'dtype', 'k', 'shape', 'approximate'))}={e()}"] * (
            r.random() < 0.3
        )
        return f"{r.choice(FUNCTIONS)}({', '.join(args)})"
    if kind == 6:
        return f"({', '.join(e() for _ in range(r.randrange(1, 4)))},)"
    if kind == 7:
        index = r.choice(
            ("None", "...", ":", f"{e()}:", f":{e()}", f"::{e()}", f"{e()}", f"{e()}:{e()}:{e()}", "-1", ":, None")
        )
        return f"{e()}[{index}]"
    if kind == 8:
        return r.choice(
            (f"-{e()}", f"~{e()}", f"{e()}.T", f"{e()}.mT", f"{e()}.shape", f"{e()}.{r.choice(FUNCTIONS)}()")
        )
    return f"({e()} if {e()} else {e()})"


def grammatical(r: random.Random) -> Input:
    text = expression(r, r.randrange(1, 6))
    if r.random() < 0.3:
        return Input(
            f"def g(x: f32[M, N], y):\n    return {text}\ndef f(x: f32[M, N], y: i32[M]):\n    a = g(x, y)\n    return {text.replace('w', 'a')}\n"
        )
    return of_expression(text)


def mutated(r: random.Random) -> Input:
    """A valid program after a few edits."""
    text = r.choice(CORPUS)
    for _ in range(r.choice((1, 1, 2, 3, 8))):
        at, length = r.randrange(len(text) + 1), r.choice((0, 1, 1, 2, 5, 20))
        new = r.choice(
            ("", r.choice(WORDS), r.choice(TRICKS), text[at : at + length] * 2, expression(r, 2), r.choice(FUNCTIONS))
        )
        text = text[:at] + new + text[at + length :]
    return Input(text)


def exchanged(r: random.Random) -> Input:
    """A valid program in which some tokens are replaced by others."""
    tokens = re.findall(r"\w+|\s+|[^\w\s]", r.choice(CORPUS))
    places = [k for k, t in enumerate(tokens) if not t.isspace()]
    for k in r.sample(places, min(len(places), r.choice((1, 1, 2, 4)))):
        tokens[k] = r.choice((tokens[r.choice(places)], r.choice(WORDS), r.choice(FUNCTIONS)))
    return Input("".join(tokens))


def nested(r: random.Random) -> Input:
    """One bracket or operator nested in itself, up to the limits and beyond."""
    left, right = r.choice(BRACKETS)
    count = r.choice((3, 10, 40, 100, 300, 1000, 1000, 6000, 20_000))
    count = min(count, 70_000 // (len(left) + len(right)))
    return of_expression(left * count + "x" + right * (count if r.random() < 0.8 else count + r.choice((-1, 1))))


def literals(r: random.Random) -> Input:
    digits = "9" * r.choice((1, 18, 19, 20, 300, 399, 401, 5000, 30_000))
    number = r.choice(
        (
            "{}",
            "-{}",
            "0x{}",
            "{}.{}",
            "1e{}",
            "1e-{}",
            "{}j",
            "0b{}",
            "{}_",
            "_{}",
            "10**{}",
            "1<<{}",
            "2**-{}",
            "{}**{}",
            "~{}",
            "{}//0",
        )
    )
    number = number.format(digits, digits)
    places = ("x + {}", "zeros(({},))", "arange({})", "zeros(({}, {}))", "x[{}]", "x[{}:]", "x[::{}]", "roll(x, {})", "pad(x, {})", "reshape(x, ({}, -1))",
              "full((2,), {}, dtype=i8)", "astype({}, i64)", "y + {}", "y << {}", "x ** {}", "eye({})", "one_hot(y, {})", "sum(x, axis={})", "tril(x, {})",
              "linspace(0, 1, {})", "x.reshape({})", "arange(0, {}, 0.1)", "y // {}", "expand_dims(x, {})", "broadcast_to(x, ({}, M, N))", "{}")  # fmt: skip
    return of_expression(r.choice(places).format(number, number))


def tricks(r: random.Random) -> Input:
    text = r.choice(
        ("x + 1", "relu(x @ w)", "sum(x, axis=1)", "x[:, None]", "gelu(x, approximate='tanh')", r.choice(CORPUS))
    )
    for _ in range(r.randrange(1, 4)):
        at = r.randrange(len(text) + 1)
        text = text[:at] + r.choice(TRICKS) + text[at:]
    return Input(text) if is_module(text) else of_expression(text)


def long(r: random.Random) -> Input:
    size = r.choice((1000, 30_000, 65_536, 65_537, 200_000))
    kind = r.randrange(7)
    if kind == 0:
        return of_expression("a" * size)
    if kind == 1:
        return of_expression(
            ("x" + r.choice((" + x", " * 2", ", x", " @ x.T", "\n+x", " # c\n", "\t", " - exp(x)"[:4]))) * (size // 8)
        )
    if kind == 2:
        return Input("def f(x: f32[N]):\n" + "    x = x + 1\n" * min(size // 14, 3000) + "    return x\n")
    if kind == 3:
        return Input("def f(" + ", ".join(f"a{k}: f32[N{k}]" for k in range(size // 16)) + "):\n    return a0\n")
    if kind == 4:
        return Input("".join(f"def f{k}(x: f32[N]):\n    return x\n" for k in range(size // 40)))
    if kind == 5:
        return Input("x", (("x", "f32[" + r.choice(("N,", "N+", "(", "*B,", "1,", "N//2+")) * (size // 8) + "N]"),))
    return of_expression("x" + r.choice(("[0]", "[:]", ".T", "[None]", "(x)", ".sum()", "[1:]")) * (size // 5))


def type_texts(r: random.Random) -> Input:
    """The text of a parameter's type after random edits."""
    text = r.choice(
        (
            "f32[M, N]",
            "f16[*B, D]",
            "i64[2 * N + 1]",
            "f32[]",
            "float",
            'Float32[Tensor, "M N"]',
            "mt.f32[M]",
            "f32[G*H, H]",
            "bool[N % 3]",
            "f32[0, 1]",
        )
    )
    for _ in range(r.randrange(4)):
        at = r.randrange(len(text) + 1)
        text = text[:at] + r.choice(WORDS + TRICKS) + text[at + r.choice((0, 0, 1, 3)) :]
    return Input(r.choice(("x", "x + 1", "sum(x)", "x @ x")), (("x", text),))


KINDS: dict[str, Callable[[random.Random], Input]] = {
    "bytes": random_bytes, "words": words, "grammatical": grammatical, "mutated": mutated, "exchanged": exchanged,
    "nested": nested, "literals": literals, "tricks": tricks, "long": long, "types": type_texts,
}  # fmt: skip
SHARES = {"nested": 0.02, "long": 0.005}  # slow kinds come less often


def kinds(count: int, seed: int) -> Iterator[tuple[str, int]]:
    """`count` pairs (kind, number), always the same ones for a seed."""
    r = random.Random(seed)
    names = list(KINDS)
    weights = [SHARES.get(name, 0.12) for name in names]
    for number in range(count):
        yield r.choices(names, weights)[0], seed * 10_000_000 + number


def made(kind: str, number: int) -> Input:
    return KINDS[kind](random.Random(f"{kind} {number}"))


# ---- verdicts --------------------------------------------------------------------------


def verdict(given: Input) -> str:
    """The code of the diagnostic, or "compiled". Raises a Fault for anything else."""
    start = time.process_time()
    with warnings.catch_warnings(), bounded(SECONDS), mt.limits(seconds=SECONDS / 4):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", mt.ShapeWarning)
        try:
            outcome = answered(given)
        except CompileError as error:
            outcome = error.code
            _printable(str(error))
            _printable(f"{error.message}{error.help}{error.label}{''.join(error.notes)}".replace("\n", ""))
            assert not error.edits or corrected(error) != error.edits[0].span.source.text
        except Fault:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Fault(f"{type(error).__name__}: {str(error)[:200]}") from error
    taken = time.process_time() - start
    if taken > SECONDS:
        raise Fault(f"took {taken:.1f} s")
    return outcome


def answered(given: Input) -> str:
    """Compiles to the generated source, which must be Python from the allowlist."""
    try:
        module = parse_program(given.text, "<hostile>", dict(given.types))
        for _, text in given.types:
            parse_type(text)
    except CompileError as error:
        if error.code != "MT0401" and not (isinstance(error, ParseError) and isinstance(error, SyntaxError)):
            raise Fault("a mistake of the text is no SyntaxError") from error
        raise
    program = mt.Program(module)
    low = program.lower()
    _printable(repr(program))
    for stage in ("ast", "kernels", "triton"):
        _printable(low[stage].replace("\n", ""))
    html = program._repr_html_()
    assert "<script" not in html
    _allowed(low["triton"])
    return "compiled"


def _allowed(source: str) -> None:
    import ast

    from minitri.triton.source import check

    tree = ast.parse(source)
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in tree.body:
        node.decorator_list = []  # type: ignore[attr-defined]
    check(tree)


def _printable(text: str) -> None:
    bad = next((c for c in text if not (c.isprintable() or c == "\n")), None)
    if bad is not None:
        raise Fault(f"U+{ord(bad):04X} would reach the terminal")


class bounded:
    """Interrupts a computation that takes longer than `seconds` (on systems with signals)."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def late(signum: int, frame: FrameType | None) -> None:
            raise Fault(f"a hang: more than {self.seconds:g} s")

        self.before: Any = signal.signal(signal.SIGPROF, late)
        signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self.before)


def tried(
    count: int, seed: int, only: str | None = None, keep_going: bool = False
) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Verdicts by kind, and the faults."""
    counts: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []
    for kind, number in kinds(count, seed):
        kind = only or kind
        try:
            counts[kind, verdict(made(kind, number))] += 1
        except Fault as fault:
            faults.append(f"{kind} {number}: {fault}: {made(kind, number)!r:.400}")
            counts[kind, "FAULT"] += 1
            if not keep_going:
                raise
    return counts, faults


def main() -> int:
    parser = argparse.ArgumentParser(description="Tries hostile programs on the compiler.")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS))
    options = parser.parse_args()
    start = time.perf_counter()
    counts, faults = tried(options.count, options.seed, options.kind, keep_going=True)
    for kind in KINDS:
        outcomes = {o: n for (k, o), n in sorted(counts.items()) if k == kind}
        if outcomes:
            print(f"{kind:12} {sum(outcomes.values()):7,}   {', '.join(f'{o} {n:,}' for o, n in outcomes.items())}")
    for fault in faults[:40]:
        print(fault, file=sys.stderr)
    print(f"{counts.total():,} inputs in {time.perf_counter() - start:.0f} s, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
