"""What the examples share: their flags, the comparison with numpy, stages, and the GPU if there is one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import minitri as mt

HERE = Path(__file__).parent
random = np.random.default_rng(0)


def flags(text: str | None, *more: tuple[str, str]) -> argparse.Namespace:
    """`--stages` and what an example has besides; `text` is its docstring."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", action="store_true", help="print every stage, from the syntax tree to machine code")
    for name, help in more:
        parser.add_argument(name, action="store_true", help=help)
    return parser.parse_args()


def program(name: str) -> mt.Program:
    """The program of a .mt file beside this one."""
    return mt.compile(HERE / name)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return random.standard_normal(shape).astype(dtype)


def agree(what: str, result: Any, expected: Any, within: float) -> None:
    """Prints the largest difference, in units of the largest element (or 1); stops if it is not `within`."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    assert result.shape == expected.shape, f"{what}: {result.shape} is not {expected.shape}"
    assert np.array_equal(np.isnan(result), np.isnan(expected)), f"{what}: nan in other places"
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    error = float(np.nan_to_num(np.abs(result - expected)).max(initial=0.0) / scale)
    print(f"  {what:32} differs from numpy by {error:.1e} (allowed {within:.1e})")
    assert error <= within, f"{what}: {error} is more than {within}"


def stages(of: mt.Program, *arrays: Any, target: str = "cuda:90") -> None:
    """Every stage of a program for these arrays; a stage that cannot be had here says why."""
    low = of.lower(*arrays, target=target)
    for stage in low.stages:
        print(f"\n# ---- {stage} ----")
        try:
            print(low[stage].rstrip())
        except mt.StageUnavailable as reason:
            print(reason)


def gpu() -> Any:
    """torch, if there is a GPU that it can use; else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def kernels(of: mt.Program, **sizes: Any) -> int:
    """How many kernels a program has."""
    return len(of.lower(**sizes).kernels)


def rate(seconds: float, bytes: float) -> str:
    return f"{seconds * 1e3:8.3f} ms  {bytes / seconds / 1e9:6.0f} GB/s"
