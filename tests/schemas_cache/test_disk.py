"""Bytes in a shared folder: no pickle, bounded, and every kind of trouble is a miss."""

from __future__ import annotations

import logging
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import diskcache
import pytest

from schemas_cache.bytes_cache import BytesDisk
from schemas_cache.disk import DiskTier
from schemas_cache.disk_rows import TROUBLE_PAUSE_S

SMALL, LARGE = b"small", bytes(100_000)  # within the database, and in a file of its own


def run_python(script: str, *arguments: object) -> str:
    """Run a script in another process and return what it prints."""
    command = [sys.executable, "-W", "error", "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("value", [b"", SMALL, LARGE])
def test_bytes_come_back(tmp_path: Path, value: bytes) -> None:
    """A value is read back as it was, by another tier as well."""
    assert DiskTier(tmp_path).put("key", value)
    assert value == DiskTier(tmp_path).get("key")


def test_missing_and_deleted_keys_are_none(tmp_path: Path) -> None:
    """What was never stored or was deleted is None."""
    tier = DiskTier(tmp_path)
    tier.put("key", SMALL)
    tier.delete("key")
    assert [tier.get("key"), tier.get("other")] == [None, None]


def test_update_sees_what_is_there(tmp_path: Path) -> None:
    """A change gets None first, then the value; returning None leaves it."""
    tier = DiskTier(tmp_path)
    seen: list[bytes | None] = []

    def change(value: bytes | None) -> bytes | None:
        seen.append(value)
        return b"first" if value is None else None

    assert [tier.update("key", change), tier.update("key", change)] == [True, True]
    assert seen == [None, b"first"]
    assert tier.get("key") == b"first"


def test_updates_from_many_threads_lose_nothing(tmp_path: Path) -> None:
    """Eight threads append ten times each to one value: eighty bytes."""
    tier = DiskTier(tmp_path)

    def append() -> None:
        for _ in range(10):
            assert tier.update("key", lambda value: (value or b"") + b"x")

    threads = [threading.Thread(target=append) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tier.get("key") == b"x" * 80


def test_nothing_but_text_and_bytes_is_stored(tmp_path: Path) -> None:
    """Keys and values that would need pickle are programming errors."""
    store = BytesDisk(str(tmp_path))
    with pytest.raises(TypeError, match="keys are text, not tuple"):
        store.put(("a", "b"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="values are bytes, not dict"):
        store.store({}, False)  # type: ignore[arg-type]


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_planted_pickle_is_never_loaded(tmp_path: Path) -> None:
    """A pickle that another program put under our key reads as no entry, and does not run."""
    trap = Trap(tmp_path / "sprung")
    pickle.loads(pickle.dumps(trap))  # noqa: S301
    trap.path.unlink()  # the trap works
    tier = DiskTier(tmp_path)
    tier.put("key", SMALL)
    with diskcache.Cache(str(tmp_path / "tables")) as foreign:
        foreign["key"] = trap
    assert tier.get("key") == b""
    assert not trap.path.exists()


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    """Above the size limit old entries go, but for the one that is read all the time."""
    tier = DiskTier(tmp_path, size_limit_bytes=1_000_000)
    for number in range(30):
        tier.put(f"key{number}", LARGE)
        assert tier.get("key0") == LARGE
    left = [number for number in range(30) if tier.get(f"key{number}") is not None]
    assert left[0] == 0
    assert left[-1] == 29
    assert len(left) <= 10


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    """A second holder gets nothing while the first holds the lock, and gets it afterwards."""
    first, second = DiskTier(tmp_path), DiskTier(tmp_path)
    hold = first.lock("key", 0)
    assert hold is not None
    assert second.lock("key", 0.1) is None
    hold.close()
    assert second.lock("key", 0) is not None


def test_a_lock_is_let_go_by_any_thread(tmp_path: Path) -> None:
    """The thread that writes lets go of a lock that the thread that compiled has taken."""
    hold = DiskTier(tmp_path).lock("key", 0)
    assert hold is not None
    thread = threading.Thread(target=hold.close)
    thread.start()
    thread.join()
    assert DiskTier(tmp_path).lock("key", 0) is not None


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    """The lock of a killed process is free at once."""
    script = (
        "import os, sys, pathlib; from schemas_cache.disk import DiskTier\n"
        "hold = DiskTier(pathlib.Path(sys.argv[1])).lock('key', 0)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert DiskTier(tmp_path).lock("key", 0) is None
        holder.kill()
        holder.wait()
        assert DiskTier(tmp_path).lock("key", 0) is not None


def test_a_folder_that_cannot_be_is_a_miss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file in the folder's place: every call answers, with one warning in all."""
    (tmp_path / "file").write_text("")
    tier = DiskTier(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        assert tier.lock("key", 0) is None
        assert [tier.put("key", SMALL), tier.get("key"), tier.update("key", lambda _: SMALL)] == [False, None, False]
    assert len(caplog.records) == 1
    assert "going on without it" in caplog.text


READ_ONLY_SCRIPT = """
import os, sys, pathlib
from schemas_cache.disk import DiskTier
import encodings.idna, diskcache, filelock
tier = DiskTier(pathlib.Path(sys.argv[1]))
pathlib.Path(sys.argv[1]).chmod(0o555)
if os.geteuid() == 0:
    os.setuid(65534)
hold = tier.lock("key", 0)
print(hold, tier.get("key"), tier.put("other", b"x"))
"""


@pytest.mark.parametrize("warm", [False, True])
def test_a_read_only_folder_is_a_miss(warm: bool) -> None:
    """Without permission to write, empty or not, there is no lock, no entry and no error."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        if warm:
            DiskTier(Path(name)).put("key", SMALL)
        assert run_python(READ_ONLY_SCRIPT, name) == "None None False"
        Path(name).chmod(0o755)


def test_a_full_disk_is_a_miss_and_leaves_nothing(tmp_path: Path) -> None:
    """Where a file cannot grow further, storing fails quietly and the part written is removed."""
    script = (
        "import resource, sys, pathlib; from schemas_cache.disk import DiskTier\n"
        "tier = DiskTier(pathlib.Path(sys.argv[1])); tier.put('key', b'small')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))\n"
        "print(tier.put('other', bytes(100_000)))"
    )
    assert run_python(script, tmp_path) == "False"
    assert list(tmp_path.rglob("*.val")) == []
    assert DiskTier(tmp_path).get("key") == SMALL


def damage(database: Path, offset: int) -> None:
    """Overwrite a database from an offset on."""
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(offset)
        file.write(b"damaged " * ((size - offset) // 8))


@pytest.mark.parametrize("offset", [0, 4096])
def test_a_damaged_database_is_replaced(tmp_path: Path, offset: int, caplog: pytest.LogCaptureFixture) -> None:
    """A broken header and broken pages: a miss, a warning, and a working cache after it."""
    DiskTier(tmp_path).put("key", SMALL)
    damage(tmp_path / "tables" / "cache.db", offset)
    tier = DiskTier(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert tier.get("key") is None
    assert len(caplog.records) == 1
    assert tier.put("key", SMALL)
    assert DiskTier(tmp_path).get("key") == SMALL


def test_a_database_damaged_while_open_is_replaced(tmp_path: Path) -> None:
    """Damage after opening is met in use, and the next call starts anew."""
    tier = DiskTier(tmp_path)
    tier.put("key", SMALL)
    damage(tmp_path / "tables" / "cache.db", 0)
    assert tier.get("key") is None
    assert tier.put("key", SMALL)
    assert tier.get("key") == SMALL


def test_another_programs_database_is_a_miss(tmp_path: Path) -> None:
    """A database with other tables of the same names is left alone."""
    (tmp_path / "tables").mkdir()
    with sqlite3.connect(tmp_path / "tables" / "cache.db") as connection:
        connection.execute("CREATE TABLE Cache (title TEXT)")
        connection.execute("CREATE TABLE Settings (key TEXT)")
    connection.close()
    tier = DiskTier(tmp_path)
    assert [tier.put("key", SMALL), tier.get("key")] == [False, None]


def test_a_deleted_value_file_is_a_miss(tmp_path: Path) -> None:
    """A value whose file is gone is None."""
    tier = DiskTier(tmp_path)
    tier.put("key", LARGE)
    for path in tmp_path.rglob("*.val"):
        path.unlink()
    assert tier.get("key") is None


def test_the_disk_is_tried_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trouble pauses the disk; when the pause is over and the cause is gone it works."""
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    folder = tmp_path / "folder"
    folder.write_text("")
    tier = DiskTier(folder)
    assert not tier.put("key", SMALL)
    folder.unlink()
    assert not tier.put("key", SMALL)
    now_s += TROUBLE_PAUSE_S
    assert tier.put("key", SMALL)


def test_a_closed_tier_leaves_the_disk_alone(tmp_path: Path) -> None:
    """After closing nothing is read, written or locked."""
    tier = DiskTier(tmp_path / "folder")
    tier.close()
    assert [tier.put("key", SMALL), tier.get("key"), tier.lock("key", 0)] == [False, None, None]
    assert not (tmp_path / "folder").exists()
