"""The cases of the benchmark: what torch is timed at computes the same as the program of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import minitri as mt
from minitri.bench import attention, run
from minitri.bench.case import Case
from minitri.bench.cases import cases
from minitri.bench.report import Peer, Row, report


def wide(x: Any) -> Any:
    """A small array of a case for torch, floats as f64."""
    x = np.asarray(x)
    return torch.from_numpy(x.astype(x.dtype if x.dtype.kind in "iub" else np.float64))


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_torch_computes_the_same(case: Case) -> None:
    random = np.random.default_rng(0)
    arrays = [run._array(i, random) for i in case.inputs]
    ours = mt.compile(case.program).numpy(*arrays)
    for ways in (case.eager, case.library):
        if ways is None:
            continue
        theirs = ways(*map(wide, arrays))
        pairs = zip(run._several(ours), run._several(theirs), strict=True)
        assert max(run._relative(a, b) for a, b in pairs) <= run.WITHIN["tf32" if case.tf32 else case.inputs[0].dtype]


def test_torch_has_the_kernels_that_attention_is_timed_at() -> None:
    from torch.nn.attention import SDPBackend

    assert all(hasattr(SDPBackend, name) for name in attention.BACKENDS.values())
    assert all(c.peers and c.library for c in cases() if c.kind in (attention.KIND, "decode"))


def test_pairs_that_see_each_other() -> None:
    for mask in ("causal", "window"):
        for length in (7, 600):
            place = torch.arange(length)
            assert attention._pairs(mask, length) == int(attention._seen(mask, place[:, None] - place).sum())


def test_names_are_different() -> None:
    assert len({c.name for c in cases()}) == len(cases())


def test_means_are_those_of_a_kind() -> None:
    rows = [Row(f"r{k}", 1e-3, kind, peers={"minitri": Peer(1.0, 0.0), "eager": Peer(t, 0.0), "compile": Peer(2 * t, 0.0)})
            for k, (kind, t) in enumerate([("a", 2.0), ("a", 8.0), ("b", 3.0)])]  # fmt: skip
    text = report(rows, {"device": "x", "torch": "1", "triton": "2", "copy_bytes_per_second": 1e12})
    assert "a, geometric mean of 2 cases: best/ours 4.00 (least 2.00), compile/ours 8.00" in text
    assert "b, geometric mean of 1 cases: best/ours 3.00 (least 3.00), compile/ours 6.00" in text
