"""A cache on disk for small facts, such as the fastest blocks for a shape: JSON files in a folder.

    put("blocks", {"program": …, "sizes": …}, {"i": 64})
    get("blocks", {"program": …, "sizes": …})            {"i": 64}

In: a kind of entry, and its key (any JSON value). Out: the value stored for exactly that key, or
None. The one idea: a cache may always be empty. An entry is a miss if it is torn, not JSON, of
another version or of another key. The cache stays empty if the disk is full, or if the folder cannot
be written or belongs to somebody else. No function here raises, and no entry is ever executed.

The folder is MINITRI_CACHE_DIR, or the user's cache folder; it has the mode 0700. The name of a file
is the hash of its key and holds no text of the user. A file is written under another name and then
renamed, so that processes that write at once leave one complete entry. Left out: an age limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

VERSION = 1  # of the format of a file
MAX_BYTES = 1 << 20  # of one entry
UNUSABLE = (OSError, ValueError, KeyError, TypeError, RecursionError)  # what an entry or a folder can raise


def folder() -> Path | None:
    """The folder of the cache, made if need be; None if there can be none that is ours alone."""
    try:
        path = configured_folder()
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        return path if _is_ours(path) else None
    except (OSError, ValueError, RuntimeError):
        return None


def configured_folder() -> Path:
    """Where the folder is to be, whether there is one or not."""
    from platformdirs import user_cache_path

    return Path(os.environ.get("MINITRI_CACHE_DIR") or user_cache_path("minitri"))


def get(kind: str, key: Any) -> Any:
    """The value stored under this key, or None."""
    with contextlib.suppress(*UNUSABLE):
        entry = json.loads(_read(_place(kind, key)))
        if entry["version"] == VERSION and entry["kind"] == kind and entry["key"] == _plain(key):
            return entry["value"]
    return None


def put(kind: str, key: Any, value: Any) -> bool:
    """Stores a value; False if that cannot be done here."""
    with contextlib.suppress(*UNUSABLE):
        entry = json.dumps({"version": VERSION, "kind": kind, "key": key, "value": value}, sort_keys=True)
        if len(entry) <= MAX_BYTES:
            _write(_place(kind, key), entry.encode())
            return True
    return False


def _place(kind: str, key: Any) -> Path:
    """The file of an entry; OSError if there is no folder."""
    root, text = folder(), json.dumps([VERSION, kind, key], sort_keys=True)
    if root is None:
        raise OSError("no folder for the cache")
    return root / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def _plain(value: Any) -> Any:
    """The value as it comes back from JSON: tuples are lists, keys are text."""
    return json.loads(json.dumps(value))


def _is_ours(path: Path) -> bool:
    """Whether a path is a folder (not a link) that belongs to this user, without access for others."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return False
    if not hasattr(os, "getuid"):
        return True  # no owners and modes of this kind here
    if found.st_uid != os.getuid():
        return False
    if found.st_mode & 0o077:
        path.chmod(0o700)
    return not path.lstat().st_mode & 0o077


def _read(place: Path) -> bytes:
    """The bytes of a plain file of ours that is not too large; OSError for anything else."""
    handle = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        ours = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        if not (stat.S_ISREG(found.st_mode) and ours and found.st_size <= 2 * MAX_BYTES):
            raise OSError("no entry of the cache")
        return file.read()


def _write(place: Path, data: bytes) -> None:
    """Writes a new file and renames it; an error leaves the old file as it was."""
    handle, made = tempfile.mkstemp(dir=place.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, place)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise
