"""The earlier calls of a program, kept so that they can be repeated quickly.

The first call of a kind binds its arguments, finds its kernels and keeps a `Replay`. The second call
of this kind finds the replay by its key. From the third call on, if nothing else was called in between,
the guards of torch recognise the call (`again`), and no key is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minitri.base.lru_cache import Recent
from minitri.runtime.binding import Call
from minitri.runtime.launch import Started
from minitri.runtime.replay import Again, Key, Replay, again_like, replayable

MAX_REPLAYS = 1024  # kept for one program; they are small


class ReplayCache:
    """The replays of one program.

    floats   the place and the default of each float parameter; floats are no part of a key
    kept     replays by the key of their call
    again    makes a call like the last one again, or returns None for another call; None: no guards fit
    """

    def __init__(self, floats: Mapping[str, tuple[int, float]]) -> None:
        self.floats = floats
        self.float_places = frozenset(place for place, _ in floats.values())
        self.kept: Recent[Key, Replay] = Recent(MAX_REPLAYS)
        self.again: Again | None = None
        self._recent: Replay | None = None  # of the last call
        self._repeated: Replay | None = None  # of the last two calls that were alike

    def find(self, key: Key, pointers: Sequence[int], args: Sequence[Any]) -> Replay | None:
        """The replay of a call with this key. If the last call had it too, guards are made for the next one."""
        replay = self.kept.get(key)
        if replay is None:
            return None
        if replay is self._recent and (replay is not self._repeated or self.again is not None):
            self._repeated, self.again = replay, again_like(args, pointers, replay)
        self._recent = replay
        return replay

    def keep(self, key: Key, pointers: Sequence[int], started: Started, call: Call, args: Sequence[Any]) -> None:
        """Keeps a call that was just made, if it can be made again."""
        if len(pointers) == len(call.arrays) and self._can_replay(started, call, args):
            self.kept.made(key, lambda: Replay(started, self.floats))

    def _can_replay(self, started: Started, call: Call, args: Sequence[Any]) -> bool:
        """Whether a call ran on its own arrays, all of them tensors on a GPU, and has plain numbers for floats."""
        numbers = all(isinstance(args[k], (int, float)) for k in self.float_places if k < len(args))
        own = all(started.call.arrays[name] is a for name, a in call.arrays.items())
        return numbers and own and replayable(call)
