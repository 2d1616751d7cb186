"""Who may use `triton.language` at a time: one interpreter, or any number of compilers.

While Triton's interpreter runs a kernel, its own functions replace the functions of the language, for the whole
process. A second interpreter would save the replacements as the originals and leave them in place; a compiler would use
them. So threads wait: `with LANGUAGE.interpreted():` until nobody else is there, `with LANGUAGE.compiled():` until
nobody interprets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._compilers, self._interpreter, self._depth = 0, 0, 0  # how many; which thread; how often it came in

    @contextmanager
    def compiled(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._depth == 0)
            self._compilers += 1
        try:
            yield
        finally:
            with self._changed:
                self._compilers -= 1
                self._changed.notify_all()

    @contextmanager
    def interpreted(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._compilers and (self._depth == 0 or self._interpreter == me))
            self._interpreter, self._depth = me, self._depth + 1
        try:
            yield
        finally:
            with self._changed:
                self._depth -= 1
                self._changed.notify_all()


LANGUAGE = Turns()
