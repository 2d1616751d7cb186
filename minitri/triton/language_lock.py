"""A lock for the module `triton.language`: either one interpreter uses the module, or any number of compilers do.

While Triton's interpreter runs a kernel, it replaces the functions of `triton.language` for the whole process. When the
kernel ends, the interpreter puts Triton's original functions back into `triton.language`. If two interpreters ran at
once, the second interpreter would save the first interpreter's functions as the originals, and later put them back. If
another thread compiled a kernel while an interpreter runs, the compiler would use the interpreter's functions by
mistake. The lock `LANGUAGE` ensures that no other thread uses `triton.language` while an interpreter runs. `with
LANGUAGE.interpreted():` waits until no other thread uses `triton.language`. `with LANGUAGE.compiled():` waits until no
interpreter runs.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class LanguageLock:
    def __init__(self) -> None:
        # A running interpreter keeps the lock of this condition, which one thread can take several times.
        self._changed = threading.Condition()
        self._compilers = 0

    @contextmanager
    def compiled(self) -> Iterator[None]:
        with self._changed:
            self._compilers += 1
        try:
            yield
        finally:
            with self._changed:
                self._compilers -= 1
                self._changed.notify_all()

    @contextmanager
    def interpreted(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._compilers)
            yield


LANGUAGE = LanguageLock()
