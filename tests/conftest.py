"""Hypothesis profiles, and tests that need a GPU.

    pytest -m "not gpu"                                a few examples a test, the same ones every time
    pytest -m "not gpu" --hypothesis-profile=full      200 examples a test, new ones every time
    pytest -m gpu                                      what runs on CUDA tensors; skipped where there is no GPU
"""

from __future__ import annotations

import os

import pytest

try:
    from hypothesis import HealthCheck, Phase, settings
except ImportError:  # the other tests do without
    settings = None

if settings is not None:
    calm = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    calm["phases"] = [p for p in Phase if p is not Phase.explain]
    settings.register_profile("ci", max_examples=8, derandomize=True, database=None, **calm)
    settings.register_profile("full", max_examples=200, **calm)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _no_gpu() if marked else ""
    for item in marked if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))


def _no_gpu() -> str:
    """Why GPU tests cannot run here; "" if they can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "there is no CUDA GPU here"
