"""A cache on disk for small values, such as the fastest block sizes for a shape. Each cached value is stored in its own
JSON file.

    put("blocks", {"program": …, "sizes": …}, {"i": 64})
    get("blocks", {"program": …, "sizes": …})            {"i": 64}

An entry of the cache has a kind, such as "blocks", and a key, which is any JSON value. The function `get` returns the
value stored for a kind and a key, or None if no value is stored. The one idea: callers must always expect an empty
cache. A cache file is treated as missing if it is damaged, has another version of the file format, or belongs to
another key. Nothing is stored if the disk is full, the cache folder is read-only, or another user owns the cache
folder. If an entry cannot be stored, the function `put` returns False. The text of an entry is only parsed as JSON, and
never executed.

The environment variable MINITRI_CACHE_DIR names the cache folder. If MINITRI_CACHE_DIR is not set, minitri makes its
own cache folder inside the user's cache folder. Only the user can open minitri's cache folder (mode 0700). The name of
a cache file is the hash of the entry's key, so the file name contains no text of the user. `put` writes a file under a
temporary name and then renames the file. If two processes write the same entry at once, the result is one complete
file, because `put` renames only complete files. Cached values never expire.
"""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = 1  # version of the file format
MAX_BYTES = 1 << 20  # size of one entry
UNUSABLE = (OSError, ValueError, KeyError, TypeError, RecursionError)  # errors from a bad entry or folder


def folder() -> Path | None:
    """Returns the cache folder, which is created if it is missing.

    Returns None if the folder cannot be created, or cannot be made private to this user.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        path = configured_folder()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path if _is_ours(path) else None
    return None


def configured_folder() -> Path:
    """Returns the path of the cache folder, whether or not the folder exists."""
    from platformdirs import user_cache_path

    return Path(os.environ.get("MINITRI_CACHE_DIR") or user_cache_path("minitri"))


def get(kind: str, key: Any, objects: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Returns the value stored for a kind of entry and a key, or None if no value is stored.

    The argument `objects` is passed to `json.loads` as the argument `object_hook`.
    """
    with contextlib.suppress(*UNUSABLE):
        entry = json.loads(_read(_place(kind, key)), object_hook=objects)
        # the stored key has passed through JSON, where tuples become lists, and keys become strings
        if entry["version"] == VERSION and entry["kind"] == kind and entry["key"] == json.loads(json.dumps(key)):
            return entry["value"]
    return None


def put(kind: str, key: Any, value: Any) -> bool:
    """Stores a value in the cache, under a kind of entry and a key. Returns False if the value cannot be stored."""
    with contextlib.suppress(*UNUSABLE):
        entry = json.dumps({"version": VERSION, "kind": kind, "key": key, "value": value}, sort_keys=True)
        if len(entry) <= MAX_BYTES:
            _write(_place(kind, key), entry.encode())
            return True
    return False


def _place(kind: str, key: Any) -> Path:
    """Returns the path of the file that stores a cache entry."""
    root, text = folder(), json.dumps([VERSION, kind, key], sort_keys=True)
    if root is None:
        raise OSError("no folder for the cache")
    return root / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def _is_ours(path: Path) -> bool:
    """Checks that a folder belongs to this user, and removes the access of other users."""
    found = path.lstat()  # `lstat` does not follow a symbolic link, so a link to a folder is rejected
    if not stat.S_ISDIR(found.st_mode):
        return False
    if not hasattr(os, "getuid"):
        return True  # not a POSIX system: there are no owners and modes to check
    if found.st_uid != os.getuid():
        return False
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return not path.lstat().st_mode & 0o077


def _read(place: Path) -> bytes:
    """Returns the content of a cache file."""
    handle = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        if not (stat.S_ISREG(found.st_mode) and ours and found.st_size <= 2 * MAX_BYTES):
            raise OSError("no entry of the cache")
        return file.read()


def _write(place: Path, data: bytes) -> None:
    """Stores the bytes of a cache entry in a file."""
    handle, made = tempfile.mkstemp(dir=place.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, place)  # an error before this line leaves an older file of the entry unchanged
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise
