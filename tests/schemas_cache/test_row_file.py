"""Mask rows in files that only grow: found by digest, shared, bounded, and never a wrong one."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import filelock
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas_cache import row_file
from schemas_cache.row_file import RowFile

ROW_BYTES = 64
LIMIT_BYTES = 1 << 20


def open_file(
    folder: Path, limit_bytes: int = LIMIT_BYTES, fingerprint: str = "v", row_bytes: int = ROW_BYTES
) -> RowFile:
    """A file as another process would open it."""
    lock = filelock.FileLock(folder.with_suffix(".lock"), thread_local=False)
    rows = RowFile(folder, fingerprint, row_bytes, limit_bytes, lambda: lock.acquire(timeout=10))
    rows.refresh()
    return rows


def row(number: int, size: int = ROW_BYTES) -> tuple[bytes, bytes]:
    """Digest and bits that stand for a number; bits that hardly compress."""
    return number.to_bytes(16, "little"), random.Random(number).randbytes(size)


def rows(*numbers: int) -> dict[bytes, bytes]:
    """Several rows."""
    return dict(map(row, numbers))


def found(file: RowFile, *numbers: int) -> list[int]:
    """Those of the numbers whose row is there; each that is there has to be right."""
    there = [number for number in numbers if file.find(row(number)[0]) is not None]
    assert all(file.find(row(number)[0]) == row(number)[1] for number in there)
    return there


@given(st.dictionaries(st.binary(min_size=16, max_size=16), st.binary(min_size=ROW_BYTES, max_size=ROW_BYTES)))
def test_rows_come_back(tmp_path_factory: pytest.TempPathFactory, expected: dict[bytes, bytes]) -> None:
    """Any rows are found again, by the one who wrote them and by others, and no others are."""
    folder = tmp_path_factory.mktemp("rows")
    writer = open_file(folder)
    writer.add(expected)
    for file in (writer, open_file(folder)):
        assert expected == {digest: file.find(digest) for digest in expected}
        assert len(expected) == len(file)
        assert file.find(b"?" * 16) is expected.get(b"?" * 16)


def test_writers_take_turns(tmp_path: Path) -> None:
    """Two that write in turn keep each other's rows, and write none twice."""
    first, second = open_file(tmp_path), open_file(tmp_path)
    first.add(rows(1, 2))
    second.add(rows(2, 3))
    first.add(rows(1, 2, 3, 4))
    second.refresh()
    assert found(first, *range(6)) == found(second, *range(6)) == [1, 2, 3, 4]
    (path,) = tmp_path.glob("*.rows")
    size = path.stat().st_size
    second.add(rows(1, 2, 3, 4))
    assert size == path.stat().st_size


def test_threads_write_and_look_up_at_once(tmp_path: Path) -> None:
    """Four threads add to two files of one folder while two look up: all is there in the end, and nothing is wrong."""
    files = [open_file(tmp_path) for _ in range(2)]
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            found(files[0], *range(200))

    def write(begin: int) -> None:
        for number in range(begin, 200, 4):
            files[begin % 2].add(rows(number))

    writers = [threading.Thread(target=write, args=(begin,)) for begin in range(4)]
    readers = [threading.Thread(target=look) for _ in range(2)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert found(open_file(tmp_path), *range(200)) == list(range(200))


def test_a_file_of_another_vocabulary_is_not_read(tmp_path: Path) -> None:
    """Rows of another vocabulary, or of another length, are not found under this one's name."""
    open_file(tmp_path).add(rows(1))
    (path,) = tmp_path.glob("*.rows")
    for fingerprint, row_bytes in (("w", ROW_BYTES), ("x", 2 * ROW_BYTES)):
        path.with_name(path.name.replace("v", fingerprint, 1)).write_bytes(path.read_bytes())
        assert found(open_file(tmp_path, fingerprint=fingerprint, row_bytes=row_bytes), 1) == []
    assert found(open_file(tmp_path), 1) == [1]


def test_every_truncation(tmp_path: Path) -> None:
    """Wherever the file is cut, the rows of whole blocks are found, and who writes next goes on behind them."""
    file = open_file(tmp_path)
    file.add(rows(1, 2))
    (path,) = tmp_path.glob("*.rows")
    first = path.stat().st_size
    file.add(rows(3))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        expected = [] if length < first else [1, 2]
        cut = open_file(tmp_path)
        assert expected == found(cut, 1, 2, 3)
        if length % 17 == 0:
            cut.add(rows(4))
            assert [*expected, 4] == found(open_file(tmp_path), 1, 2, 3, 4)


def test_every_flipped_byte(tmp_path: Path) -> None:
    """Whichever byte changes, a row is found as it was or not at all."""
    file = open_file(tmp_path)
    file.add(rows(1, 2))
    file.add(rows(3))
    (path,) = tmp_path.glob("*.rows")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        assert len(found(open_file(tmp_path), 1, 2, 3)) < 3


def test_a_file_cut_while_open(tmp_path: Path) -> None:
    """One who has the file open when it is cut finds what is left, and writes on."""
    file = open_file(tmp_path)
    file.add(rows(1))
    file.add(rows(2))
    (path,) = tmp_path.glob("*.rows")
    with path.open("r+b") as damaged:
        damaged.truncate(path.stat().st_size - 1)
    assert found(file, 1, 2) == [1]
    file.add(rows(3))
    assert found(file, 1, 2, 3) == [1, 3]


def test_what_was_used_lately_stays(tmp_path: Path) -> None:
    """The files stay within the limit however much comes; a row that is asked for again and again is kept."""
    file = open_file(tmp_path, limit_bytes=20_000)
    for number in range(1000):
        file.add(rows(number))
        assert found(file, 0) == [0]
        assert sum(path.stat().st_size for path in tmp_path.glob("*")) <= 20_000 + 500
    left = found(open_file(tmp_path, limit_bytes=20_000), *range(1000))
    assert left[0] == 0
    assert left[1:] == list(range(left[1], 1000))
    assert 50 < len(left) < 200


def test_rows_are_bounded_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short rows are, no more than so many are kept in a file."""
    monkeypatch.setattr(row_file, "MAX_ROWS", 10)
    file = open_file(tmp_path)
    for number in range(100):
        file.add(rows(number))
    assert 10 <= len(file) <= 20
    assert found(file, 98, 99) == [98, 99]


def test_vocabularies_share_the_limit(tmp_path: Path) -> None:
    """What was written longest ago goes first, whichever vocabulary it is of."""
    files = [open_file(tmp_path, 30_000, fingerprint) for fingerprint in "abc"]
    for file in files:
        for number in range(90):
            file.add(rows(number))
    assert sum(path.stat().st_size for path in tmp_path.glob("*")) <= 30_000 + 500
    assert found(files[2], 89) == [89]
    files[0].refresh()
    assert found(files[0], *range(90)) == []


def test_the_other_finds_rows_after_the_files_changed_places(tmp_path: Path) -> None:
    """One who opened the file before it became the old one goes on finding what is there."""
    reader, writer = open_file(tmp_path, 20_000), open_file(tmp_path, 20_000)
    for number in range(300):
        writer.add(rows(number))
        if number % 50 == 0:
            reader.refresh()
            assert found(reader, number) == [number]
    reader.refresh()
    assert found(reader, *range(300)) == found(writer, *range(300))


@pytest.mark.parametrize("written", [0, 1, 70])
def test_a_write_that_stops_half_way_leaves_nothing(
    tmp_path: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk becomes full inside a block, the file stays as it was, the error is raised, later writes go on."""
    file = open_file(tmp_path)
    file.add(rows(1))
    (path,) = tmp_path.glob("*.rows")
    before, write = path.read_bytes(), os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if offset > len(before) or not written:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:written], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            file.add(rows(2))
    assert before == path.read_bytes()
    file.add(rows(2))
    assert found(open_file(tmp_path), 1, 2) == [1, 2]


def test_looking_up_does_not_wait_for_who_writes(tmp_path: Path) -> None:
    """While a writer waits for another process, rows are found."""
    file = open_file(tmp_path)
    file.add(rows(1))
    waiting, go_on = threading.Event(), threading.Event()

    def lock() -> nullcontext[None]:
        waiting.set()
        assert go_on.wait(10)
        return nullcontext()

    slow_lock: Callable[[], nullcontext[None]] = lock
    file._lock = slow_lock
    writer = threading.Thread(target=file.add, args=(rows(2),))
    writer.start()
    assert waiting.wait(10)
    assert found(file, 1, 2) == [1]
    go_on.set()
    writer.join()
    assert found(file, 1, 2) == [1, 2]
