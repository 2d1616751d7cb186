"""An LRU cache: it keeps a fixed number of values and drops the one that was used least recently.

    variants = Recent(64)
    variants.made(key, lambda: compiled(key))     made once, and again after 64 others have been asked for since

If one thread makes a value, other threads that ask for the same key wait for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.lock = most, threading.RLock()

    def made(self, key: K, make: Callable[[], V]) -> V:
        with self.lock:
            value = self[key] if key in self else make()
            self[key] = value
            self.move_to_end(key)
            if len(self) > self.most:
                self.popitem(last=False)
            return value
