"""The cases of the benchmark, made from cases.toml. A case is a program, its arguments, and the same computation in
torch.

The function `cases` makes `Case`s from the rows of the table cases.toml. A row of cases.toml, such as the row for
softmax, has a name, a function, a list of cases and a library function.

    name = "softmax"
    function = "softmax_of_rows"
    cases = ["f32 512x131072"]
    library = "softmax(x, axis=-1)"

The name of a case has two parts: the name of its row, and one string from the row's list `cases`. For example, "softmax
f32 512x131072" is made of "softmax" and "f32 512x131072". The text "f32 512x131072" means that an array whose type in
the program is `f32[M, N]` has f32 elements, 512 rows (M) and 131072 columns (N). The programs of the benchmark, in
minitri's language, are functions of the module programs.mt.

For eager torch, torch_twin.py translates the text of a case's program into a function of torch. Eager torch runs one
kernel for each operation of the case's torch function. torch.compile compiles the torch function. The result of the
torch function in f64 is the reference for the errors of all implementations. If torch has one library function for the
whole computation of a case, the library function is timed too.

In the benchmark's programs, attention is written as its mathematical definition. The torch function
`attention_by_definition` computes the scores of only some queries at a time, so that the longest case fits into memory.
For attention, the benchmark also times compiled flex_attention, and `scaled_dot_product_attention` with the kernels of
cuDNN and FlashAttention-2. If a machine lacks an implementation, the report says that the implementation is missing.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from minitri.base.toml_tables import table_beside
from minitri.bench.torch_twin import torch_twin

TABLE: dict[str, Any] = table_beside(__file__, "cases.toml")
INTERPRETED = "interpreted"  # the kind of a case that Triton's interpreter runs on the CPU


class Input(NamedTuple):
    """An input array of a benchmark case, filled with random numbers.

    `below`: an upper bound: random integers are smaller than `below`. 0 for an array of random floats.
    `signed`: whether random integers start at -`below` instead of 0.
    `positive`: whether random floats are uniformly distributed from 0 to 1. Without `positive`, random floats are
        normally distributed.
    `layout`: "transposed": the last two axes are exchanged in memory. "every other": the last axis has the stride 2.
        "wide rows": the array is a part of an array with longer rows.
    `scale`: the standard deviation of the random floats.
    """

    dtype: str
    shape: tuple[int, ...]
    below: int = 0
    positive: bool = False
    signed: bool = False
    layout: str = ""
    scale: float = 1.0


class Case(NamedTuple):
    """One case of the benchmark: a program, its input arrays, and the same computation in torch.

    `eager`: the computation in torch, as several operations. `library` computes the same result with one function of
        torch.
    `picks`: whether the program reads only some elements of its first input: as many elements as the output has.
    `flops`: the number of floating-point operations of matrix products. 0 for programs that mostly move memory.
    `kind`: the group of the case, such as "memory". The tables of the benchmark show a mean for each group of cases.
    `tf32`: whether torch may round the f32 factors of matrix products to TF32.
    `peers`: other implementations of the same computation, by name. All peers need a GPU.
    `tuned`: whether minitri and torch are also timed with block sizes chosen by measurement.
    `beside`: programs of the language that compute other results from the same inputs, by name. The benchmark also
        times the programs in `beside`.
    """

    name: str
    program: str
    inputs: tuple[Input, ...]
    eager: Callable[..., Any]
    library: Callable[..., Any] | None = None
    picks: bool = False
    flops: int = 0
    kind: str = "memory"
    tf32: bool = False
    peers: Mapping[str, Callable[..., Any]] = {}
    tuned: bool = False
    beside: Mapping[str, str] = {}


@cache
def cases(group: str = "benchmark") -> tuple[Case, ...]:
    """Returns all cases of one list in cases.toml; `group` is the name of the list, "benchmark" or "ablation"."""
    return tuple(case for row in TABLE[group] for case in cases_of(**row))


def ablated(names: Sequence[str]) -> list[Case]:
    """Returns the cases whose names contain one of `names`.

    If `names` is empty, returns at least one case for each optimisation.
    """
    extra = cases("ablation")
    wanted = names or [*TABLE["ablated"]["names"], *(c.name for c in extra)]
    return [c for c in (*cases(), *extra) if any(name in c.name for name in wanted)]


def cases_of(
    name: str, function: str, cases: Sequence[str], *, order: Sequence[str] = (), sizes: Mapping[str, Any] = {},
    arrays: Mapping[str, Any] = {}, eager: str = "", library: str = "", flops: Sequence[Any] = (), mask: str = "",
    peers: Sequence[str] = (), beside: Sequence[str] = (), **settings: Any,
) -> Iterator[Case]:  # fmt: skip
    """Yields the benchmark cases that one row of cases.toml defines. The head of cases.toml explains the fields of a
    row.
    """
    for of in cases:
        written = of.split()[0]
        dtype = written.replace("tf32", "f32")
        text = program(function, dtype)
        params = re.findall(r"(\w+): (\w+)\[(.*?)\]", text.partition(")")[0])
        named = order or list(dict.fromkeys(d for *_, dims in params for d in dims.split(", ") if d.isidentifier()))
        numbers = [int(n) for n in re.findall(r"\d+", of.removeprefix(written))]
        pack = numbers[: max(len(numbers) - len(named), 0)]
        known: dict[str, Any] = {"*": math.prod(pack), **dict(zip(named, numbers[len(pack) :]))}
        known |= {n: known.get(size, size) for n, size in sizes.items()}
        header = f"def f({', '.join(n for n, *_ in params)}):\n    return "
        yield Case(
            f"{name} {of}", text, tuple(_input(p, pack, known, **arrays.get(p[0], {})) for p in params),
            partial(attention_by_definition, mask) if mask else torch_twin(header + eager + "\n" if eager else text),
            partial(_library, mask) if peers else torch_twin(header + library + "\n") if library else None,
            flops=math.prod(known.get(n, n) for n in (*flops, "*")) if flops else 0, tf32=written == "tf32",
            peers={peer: partial(PEERS[peer], mask) for peer in peers},
            beside={other: program(f"attention_{other}", dtype) for other in beside}, **settings,
        )  # fmt: skip


def _input(
    param: tuple[str, str, str], pack: Sequence[int], known: Mapping[str, int], below: Any = 0, **settings: Any
) -> Input:
    """Describes the input array for a parameter: its dtype, its shape and the limit of random integers."""
    _, dtype, dims = param  # name, dtype, dims
    shape = [n for d in dims.split(", ") for n in (pack if d[0] == "*" else [known[d] if d in known else int(d)])]
    # each element of a bool array is 0 or 1 at random
    return Input(dtype, tuple(shape), known.get(below, below) or 2 * (dtype == "bool"), **settings)


def program(name: str, dtype: str = "f32") -> str:
    """Returns the text of a function of programs.mt, with the dtype f32 replaced by `dtype`.

    Raises KeyError if programs.mt has no function of this name.
    """
    return f"\n{_functions()[name].replace('f32', dtype)}\n"


@cache
def _functions() -> dict[str, str]:
    """Returns the text of each function of programs.mt, by name."""
    text = Path(__file__).with_name("programs.mt").read_text(encoding="utf-8").strip()
    # a function ends at the first blank line after its `def`
    return {found[2]: found[1] for found in re.finditer(r"^(def (\w+).*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)}


# ---- attention ----------------------------------------------------------------------------------


WINDOW = 512  # the same number as in programs.mt
AT_ONCE = 2048  # queries whose scores the reference computes at a time


def _seen(mask: str, back: Any) -> Any:
    return back >= 0 if mask == "causal" else (back >= 0) & (back < WINDOW)


def attention_by_definition(mask: str, q: Any, k: Any, v: Any) -> Any:
    """Computes attention by its mathematical definition. To save memory, the function handles `AT_ONCE` queries at a
    time.
    """
    parts = [_rows(mask, q[..., i : i + AT_ONCE, :], k, v, i) for i in range(0, q.shape[-2], AT_ONCE)]
    return torch.cat(parts, -2)


def _rows(mask: str, q: Any, k: Any, v: Any, first: int) -> Any:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask != "full":
        here = torch.arange(first, first + q.shape[-2], device=q.device)
        seen = _seen(mask, here[:, None] - torch.arange(k.shape[-2], device=q.device))
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ v


def _library(mask: str, q: Any, k: Any, v: Any) -> Any:
    """Computes attention with the kernel that torch itself chooses."""
    attend = torch.nn.functional.scaled_dot_product_attention
    if mask != "window":
        return attend(q, k, v, is_causal=mask == "causal")
    rows, keys = (torch.arange(x.shape[-2], device=q.device) for x in (q, k))
    return attend(q, k, v, attn_mask=_seen(mask, rows[:, None] - keys))


def _dot_product(backend: str, mask: str, q: Any, k: Any, v: Any) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")


def _flex(mask: str, q: Any, k: Any, v: Any) -> Any:
    return _compiled_flex(mask, q.shape[-2], k.shape[-2], str(q.device))(q, k, v)


@cache
def _compiled_flex(mask: str, rows: int, keys: int, device: str) -> Callable[..., Any]:
    """Returns torch's flex_attention, compiled for one shape of its inputs."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    seen = None
    if mask != "full":
        seen = create_block_mask(lambda b, h, i, j: _seen(mask, i - j), None, None, rows, keys, device=device)
    # kept by `@cache`, so that the compilation is not timed
    return torch.compile(partial(flex_attention, block_mask=seen), dynamic=False)


BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}
PEERS = {name: partial(_dot_product, backend) for name, backend in BACKENDS.items()} | {"flex": _flex}
