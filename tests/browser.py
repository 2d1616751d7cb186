"""A real browser for tests: headless Chromium without network access, driven by selenium.

In: HTML. Out: a `Browser` that shows it from a file. Debian has packages of both parts: chromium and
chromium-driver. `missing` names the part that is not installed. Tests use it as the reason of their skip.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def missing() -> str:
    """The part that is not installed; "" if a browser can be started."""
    if find_spec("selenium") is None:
        return "selenium is not installed"
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "there is no chromium with its driver (Debian: chromium, chromium-driver)"
    return ""


def pauses() -> Iterator[float]:
    """Seconds between questions to a page. They become longer, because each question takes processor time."""
    yield from (0.02 * 1.2**k for k in range(14))
    yield from itertools.repeat(0.25)


class Browser:
    """One tab. Methods read from the real page, and the pointer and the keyboard events are real."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver, self.folder = driver, folder
        self.opened = 0

    def open(self, html: str, fragment: str = "", width: int = 1280, height: int = 800, dark: bool = False) -> float:
        """Shows a page from a file. Returns the seconds until the page is ready."""
        self.size(width, height, dark)
        self.opened += 1
        path = self.folder / f"page{self.opened}.html"
        path.write_text(html, encoding="utf-8")
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        start = time.perf_counter()
        self.driver.get(f"{path.as_uri()}{fragment}")
        self.wait("document.body.dataset.ready === 'yes'")
        return time.perf_counter() - start

    def visit(self, address: str, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Shows a page from a server on this machine."""
        self.size(width, height, dark)
        self.driver.get("about:blank")  # Chromium does not load an address again that differs only after its #
        self.driver.get_log("browser")
        self.driver.get(address)
        self.wait("document.body.dataset.ready === 'yes'", seconds=120)

    def size(self, width: int, height: int, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def ask(self, expression: str, *arguments: Any) -> Any:
        """The value of a JavaScript expression."""
        return self.driver.execute_script(f"return {expression}", *arguments)

    def wait(self, expression: str, seconds: float = 120) -> None:
        """Until an expression of the page is true. A busy machine is slow."""
        end = time.monotonic() + seconds
        for pause in pauses():
            if self.ask(expression):
                return
            assert time.monotonic() < end, f"still not: {expression}\n{self.errors()}"
            time.sleep(pause)

    def until(self, wanted: Any, shown: Callable[[], Any], seconds: float = 120) -> None:
        """Until the page shows what is wanted."""
        end = time.monotonic() + seconds
        for pause in pauses():
            if (found := shown()) == wanted:
                return
            assert time.monotonic() < end, f"{found!r} instead of {wanted!r}\n{self.errors()}"
            time.sleep(pause)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return self.ask("[...document.querySelectorAll(arguments[0])].map(n => n.textContent)", selector)

    def point(self, element: Any) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver, duration=0).move_to_element(element).perform()

    def keys(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def errors(self) -> list[str]:
        """The errors of the page since it was opened, violations of its content policy included."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that the page has requested since it was opened, without its own file."""
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        own = (self.folder / f"page{self.opened}.html").as_uri()
        return [url for url in asked if not url.startswith((own, "data:"))]

    def picture(self, name: str) -> None:
        """Saves a picture of the page in the folder EXPLORER_PICTURES, if that variable is set."""
        if folder := os.environ.get("EXPLORER_PICTURES"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with its own, empty profile."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver, folder)
    finally:
        driver.quit()
