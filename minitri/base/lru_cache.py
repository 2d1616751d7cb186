"""An LRU cache, which keeps a fixed number of values and drops the value that was used least recently.

    variants = Recent(64)
    variants.made(key, lambda: compiled(key))     compiles on the first call; later calls return the stored value

With `Recent(64)`, a value is dropped after 64 other keys have been used. While one thread computes a value, other
threads that use the cache wait.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """An LRU cache of limited size: `Recent(64)` holds at most 64 values. Several threads can use the cache at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.lock = most, threading.RLock()

    def made(self, key: K, make: Callable[[], V]) -> V:
        """Returns the value stored under `key`. If `key` is new, the function stores and returns the result of
        `make()`.
        """
        with self.lock:
            value = self[key] if key in self else make()
            self[key] = value
            self.move_to_end(key)
            if len(self) > self.most:
                self.popitem(last=False)
            return value
