"""The disk cache (minitri/runtime/disk_cache.py): an entry is read completely or not at all, whatever happens to the
disk.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minitri.base import disk_cache

KEY = {"program": "x + 1", "sizes": [3, 4]}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MINITRI_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"


def only(root: Path) -> Path:
    (path,) = root.iterdir()
    return path


def test_a_value_comes_back(root: Path) -> None:
    assert disk_cache.get("blocks", KEY) is None
    assert disk_cache.put("blocks", KEY, {"i": 64, "note": "é\u202e"})
    assert disk_cache.get("blocks", KEY) == {"i": 64, "note": "é\u202e"}
    assert disk_cache.get("warps", KEY) is None and disk_cache.get("blocks", {**KEY, "sizes": [4, 3]}) is None
    assert disk_cache.put("blocks", (1, (2,)), 5) and disk_cache.get("blocks", [1, [2]]) == 5
    assert len(list(root.iterdir())) == 2


def test_only_the_owner_has_access(root: Path) -> None:
    disk_cache.put("blocks", KEY, 1)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE(only(root).stat().st_mode) == 0o600
    root.chmod(0o777)
    assert disk_cache.get("blocks", KEY) == 1 and stat.S_IMODE(root.stat().st_mode) == 0o700


def test_file_names_are_hashes(root: Path) -> None:
    for kind in ("../../outside", "a/b", "\0", "x" * 10_000, "CON"):
        assert disk_cache.put(kind, KEY, 1) and disk_cache.get(kind, KEY) == 1
    assert all(len(p.name) == 69 and p.parent == root for p in root.iterdir())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"version": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"\x80\x04K\x01.",
        b"{}" * 2_000_000,
        b'{"version": NaN}',
    ],
    ids=lambda data: repr(data[:12]),
)
def test_a_damaged_entry_is_a_miss(root: Path, data: bytes) -> None:
    disk_cache.put("blocks", KEY, 1)
    only(root).write_bytes(data)
    assert disk_cache.get("blocks", KEY) is None
    assert disk_cache.put("blocks", KEY, 2) and disk_cache.get("blocks", KEY) == 2


def test_every_truncation_is_a_miss(root: Path) -> None:
    disk_cache.put("blocks", KEY, {"i": 64})
    path = only(root)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert disk_cache.get("blocks", KEY) is None, length


@pytest.mark.parametrize("change", [{"version": 0}, {"kind": "warps"}, {"key": 3}])
def test_an_entry_of_another_version_or_key_is_a_miss(root: Path, change: dict[str, Any]) -> None:
    """A collision of hashes, or a moved file, would look like this, too."""
    disk_cache.put("blocks", KEY, 1)
    only(root).write_text(json.dumps({"version": 1, "kind": "blocks", "key": KEY, "value": 1, **change}))
    assert disk_cache.get("blocks", KEY) is None


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", float, "x" * disk_cache.MAX_BYTES])
def test_values_that_are_not_json_or_too_large_are_not_stored(root: Path, value: Any) -> None:
    assert not disk_cache.put("blocks", KEY, value) and disk_cache.get("blocks", KEY) is None
    assert not disk_cache.put("blocks", {"key": object()}, 1) and disk_cache.get("blocks", object()) is None


def test_links_are_refused(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root.symlink_to(elsewhere)
    assert not disk_cache.put("blocks", KEY, 1) and disk_cache.get("blocks", KEY) is None
    assert not list(elsewhere.iterdir())
    root.unlink()
    disk_cache.put("blocks", KEY, 1)
    entry, outside = only(root), tmp_path / "outside.json"
    os.replace(entry, outside)
    entry.symlink_to(outside)
    assert disk_cache.get("blocks", KEY) is None, "a link is not followed"
    before = outside.read_bytes()
    assert disk_cache.put("blocks", KEY, 2) and outside.read_bytes() == before and not entry.is_symlink()


def test_a_pipe_in_place_of_an_entry_does_not_block(root: Path) -> None:
    disk_cache.put("blocks", KEY, 1)
    path = only(root)
    path.unlink()
    os.mkfifo(path)
    assert disk_cache.get("blocks", KEY) is None


def test_another_users_folder_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_cache.put("blocks", KEY, 1)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert (
        disk_cache.folder() is None and disk_cache.get("blocks", KEY) is None and not disk_cache.put("blocks", KEY, 2)
    )


@pytest.mark.parametrize("where", ["/dev/null/cache", "\0", "/proc/cache"])
def test_without_a_folder_nothing_is_stored(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "MINITRI_CACHE_DIR": where})
    assert disk_cache.folder() is None
    assert not disk_cache.put("blocks", KEY, 1) and disk_cache.get("blocks", KEY) is None


@pytest.mark.parametrize("call", ["fsync", "replace", "fdopen"])
def test_on_a_full_disk_nothing_is_stored(root: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk_cache.put("blocks", KEY, 1)

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    assert not disk_cache.put("blocks", KEY, 2)
    monkeypatch.undo()
    os.environ["MINITRI_CACHE_DIR"] = str(root)
    assert disk_cache.get("blocks", KEY) == 1, "what was there stays"
    assert [p.name for p in root.iterdir() if p.name.startswith(".new-")] == []
    del os.environ["MINITRI_CACHE_DIR"]


WRITER = """
import sys
from minitri.base import disk_cache as cache
who, seen = int(sys.argv[1]), set()
for k in range(150):
    assert cache.put("blocks", "shared", {"who": who, "fill": [who] * 2000})
    assert cache.put("blocks", ["own", who, k % 5], k)
    value = cache.get("blocks", "shared")
    assert value is not None and value["fill"] == [value["who"]] * 2000, "torn"
    seen.add(value["who"])
print(len(seen))
"""


def test_processes_may_write_the_same_entry_at_once(root: Path) -> None:
    """A reader always gets the complete entry of one writer."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for n in range(4)
    ]
    results = [w.communicate(timeout=120) for w in writers]
    assert [w.returncode for w in writers] == [0] * 4, results
    assert not [p for p in root.iterdir() if p.name.startswith(".new-")]
    assert disk_cache.get("blocks", ["own", 2, 4]) == 149
