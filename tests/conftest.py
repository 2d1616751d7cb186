"""Settings of pytest: hypothesis profiles, tests that need a GPU, a browser tab, and golden texts.

    pytest -m "not gpu"                                a few examples a test, the same ones every time
    pytest -m "not gpu" --hypothesis-profile=full      200 examples a test, new ones every time
    pytest -m gpu                                      tests on CUDA tensors; skipped if there is no GPU
    pytest --update-golden                             writes tests/goldens/*.txt instead of comparing with it

`slow` tests run only in the full profile.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # test products are small: more threads would only wait
os.environ.setdefault("MINITRI_TRACEBACK", "1")  # a test that fails shows its traceback
os.environ["PYTHONDONTWRITEBYTECODE"] = ""  # tests start Python hundreds of times: it must keep what it has compiled
sys.dont_write_bytecode = False

import pytest

try:
    from hypothesis import HealthCheck, Phase, settings
except ImportError:  # the other tests need no hypothesis
    settings = None

if settings is not None:
    calm = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    calm["phases"] = [p for p in Phase if p is not Phase.explain]
    settings.register_profile("ci", max_examples=3, derandomize=True, database=None, **calm)
    settings.register_profile("full", max_examples=200, **calm)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Turns off tests of Triton's interpreter: it tests each sum of integers for overflow, and reports it only in debug mode."""
    with suppress(ImportError, TypeError, AttributeError):
        from triton.runtime.interpreter import interpreter_builder

        interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)


@pytest.hookimpl(trylast=True)  # torch need not be imported if no selected test needs a GPU
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _no_gpu() if marked else ""
    for item in marked if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Lets the garbage collector skip the tests themselves and the imported modules, and run less often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # Triton counts the objects that are left at the end


def _no_gpu() -> str:
    """Why GPU tests cannot run on this machine; "" if they can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "there is no CUDA GPU here"


# ---- a browser -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A tab of headless Chromium (tests/browser.py). The test is skipped if there is no browser."""
    from browser import browser, missing

    if reason := missing():
        pytest.skip(reason)
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


# ---- goldens ---------------------------------------------------------------------------

GOLDENS = Path(__file__).parent / "goldens"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/goldens/*.txt anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` asserts that tests/goldens/NAME.txt holds the text."""

    def check(name: str, text: str) -> None:
        path = GOLDENS / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is not there: pytest --update-golden writes it"
        assert text == path.read_text(encoding="utf-8"), (
            f"{path.name} differs: pytest --update-golden, then read the diff"
        )

    return check
