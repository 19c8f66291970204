"""Every fault of a disk, injected for real: a miss and a warning, never a wrong mask and never an error."""

from __future__ import annotations

import logging
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas_cache import bytes_cache
from schemas_cache.codec import DIGEST_START, FORMAT_VERSION, MAGIC, seal, unseal
from schemas_cache.compile import CompiledSchema, compile_source
from schemas_cache.disk import DiskTier
from schemas_cache.entries import cache_key, tables_entry, tables_from
from schemas_cache.source import Source, json_object_source
from schemas_cache.store import Lookup, SchemaCache
from schemas_cache.vocabulary import Vocabulary
from tests.schemas_cache.tables import ROOT, SOURCES, VOCABULARY, assert_same_masks

LARGE = SOURCES["tree"]  # its entry is a file; the others lie in the database
FRESH = {name: compile_source(source, VOCABULARY) for name, source in SOURCES.items()}


def fill(folder: Path) -> None:
    """A folder with every schema, and what some walks learnt of each."""
    cache = SchemaCache(folder)
    for name, source in SOURCES.items():
        assert_same_masks(FRESH[name], cache.get(source, VOCABULARY).compiled, seed=0)
    cache.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled folder, to be copied."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    fill(folder)
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    """A copy of the filled folder."""
    shutil.copytree(filled, tmp_path / "cache")
    return tmp_path / "cache"


def ask_all(folder: Path, seed: int = 0) -> list[str]:
    """Ask a new cache for every schema, compare the masks of a walk with fresh ones, and return the tiers."""
    cache = SchemaCache(folder)
    tiers = list[str]()
    for name, source in SOURCES.items():
        lookup = cache.get(source, VOCABULARY)
        assert_same_masks(FRESH[name], lookup.compiled, seed)
        tiers.append(lookup.tier)
    cache.close()
    return tiers


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says; nothing in it may be worse than a warning."""
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    return [record.getMessage() for record in caplog.records]


def test_the_folder_without_faults(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the faults below are injected into: everything comes from disk, without a warning."""
    assert ask_all(folder) == ["disk"] * len(SOURCES)
    assert warnings(caplog) == []
    kinds = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert {".db", ".val", ".rows"} <= kinds


# Killed while writing

WRITER = """
import itertools, pathlib, sys
from schemas_cache.store import SchemaCache
from tests.schemas_cache.tables import SOURCES, VOCABULARY, assert_same_masks
for round in itertools.count():
    cache = SchemaCache(pathlib.Path(sys.argv[1]), write_delay_s=0.001, memory_entries=2)
    for source in SOURCES.values():
        compiled = cache.get(source, VOCABULARY).compiled
        print("writing", flush=True)
        assert_same_masks(compiled, compiled, int(sys.argv[2]) + round)
        cache.flush()
    cache.close()
    cache.delete(compiled.schema_hash)
"""


def test_killed_while_writing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer is killed again and again, at random moments: what is there is right, what is not is written anew."""
    chance = random.Random(1)
    for attempt in range(10):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(attempt)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            time.sleep(chance.random() * 0.15)
            writer.kill()
        assert writer.returncode == -signal.SIGKILL
        ask_all(tmp_path, attempt)
    assert set(ask_all(tmp_path)) == {"disk"}
    assert all("cut off" in message for message in warnings(caplog))
    monkeypatch.setattr(bytes_cache, "ORPHAN_AGE_S", -1.0)
    DiskTier(tmp_path).put("another", b"")
    named = {path.stat().st_size for path in tmp_path.rglob("*.val")}
    assert len(list(tmp_path.rglob("*.val"))) <= len(named) <= len(SOURCES)


# Cut and changed files


def files_of(folder: Path, pattern: str) -> list[Path]:
    """Files by name, largest first."""
    return sorted(folder.rglob(pattern), key=lambda path: path.stat().st_size, reverse=True)


@pytest.mark.parametrize("pattern", ["*.val", "cache.db", "*.rows"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_cut_file(folder: Path, pattern: str, share: float, caplog: pytest.LogCaptureFixture) -> None:
    """A value, the database and the rows, each cut at some length: masks are right, after two starts all is warm."""
    path = files_of(folder, pattern)[0]
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))
    for seed in (1, 2):
        ask_all(folder, seed)
    warnings(caplog)
    assert ask_all(folder, seed=3) == ["disk"] * len(SOURCES)


@pytest.mark.parametrize("pattern", ["*.val", "cache.db", "*.rows"])
def test_flipped_bits(filled: Path, tmp_path: Path, pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    """A bit of any file flips, twenty times: masks are right, no error is logged, and what was lost comes back."""
    chance = random.Random(pattern)
    for attempt in range(20):
        folder = shutil.copytree(filled, tmp_path / str(attempt))
        path = chance.choice(files_of(folder, pattern))
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        for seed in (1, 2):
            ask_all(folder, seed)
        warnings(caplog)
        assert ask_all(folder, attempt) == ["disk"] * len(SOURCES), (path, attempt)


def test_every_bit_of_a_value_counts(folder: Path) -> None:
    """Whichever bit of the stored value flips, the entry is a miss; a sample of all places."""
    disk, key = DiskTier(folder), cache_key(LARGE, VOCABULARY)
    stored = disk.get(key)
    assert stored is not None
    for place in random.Random(3).sample(range(len(stored)), 25):
        damaged = bytearray(stored)
        damaged[place] ^= 1 << place % 8
        disk.put(key, bytes(damaged))
        cache = SchemaCache(folder)
        assert cache.get(LARGE, VOCABULARY).tier == "miss"
        cache.close()


# Entries of others


def version_up(entry: bytes, key: str) -> bytes:
    """The entry of a later format version, sealed as that would."""
    body = bytes(unseal(tables_from(entry, key)))
    sealed = bytearray(seal(body))
    sealed[len(MAGIC) : DIGEST_START] = (FORMAT_VERSION + 1).to_bytes(4, "little")
    return tables_entry(key, bytes(sealed))


def other_vocabulary(_entry: bytes, key: str) -> bytes:
    """The same schema for other tokens, under this key."""
    other = Vocabulary([*[bytes([byte]) for byte in reversed(range(256))], b""], [256])
    return tables_entry(key, compile_source(LARGE, other).dump(with_rows=False))


def other_schema(_entry: bytes, key: str) -> bytes:
    """Another schema for the same tokens, under this key."""
    return tables_entry(key, FRESH["strings"].dump(with_rows=False))


@pytest.mark.parametrize("plant", [version_up, other_vocabulary, other_schema])
def test_an_entry_of_something_else(
    folder: Path, plant: Callable[[bytes, str], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Whole and sound tables that are not those of the key: a miss, one warning, and the right ones the next time."""
    disk, key = DiskTier(folder), cache_key(LARGE, VOCABULARY)
    stored = disk.get(key)
    assert stored is not None
    disk.put(key, plant(stored, key))
    cache = SchemaCache(folder)
    lookup = cache.get(LARGE, VOCABULARY)
    assert lookup.tier == "miss"
    assert_same_masks(FRESH["tree"], lookup.compiled, seed=0)
    cache.close()
    assert [message for message in warnings(caplog) if "will be replaced" in message] == warnings(caplog) != []
    assert ask_all(folder) == ["disk"] * len(SOURCES)


def test_rows_of_another_vocabulary(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file of rows under the name of another vocabulary is cut to nothing, and no row of it is ever used."""
    (path,) = folder.rglob("*.rows")
    other = Vocabulary([bytes([byte]) for byte in range(256)], [])
    wider = path.with_name(path.name.replace(VOCABULARY.fingerprint, other.fingerprint))
    path.rename(wider)
    cache = SchemaCache(folder)
    compiled = cache.get(json_object_source(), other).compiled
    assert_same_masks(compile_source(json_object_source(), other), compiled, seed=0)
    cache.close()
    assert ["cut off" in message for message in warnings(caplog)] == [True]


# Disks that are full or must not be written

USER = """
import logging, pathlib, sys
from schemas_cache.compile import compile_source
from schemas_cache.store import SchemaCache
from tests.schemas_cache.tables import SOURCES, VOCABULARY, assert_same_masks
{before}
folder = pathlib.Path(sys.argv[1])
cache = SchemaCache(folder, write_delay_s=0.01)
tiers = []
for round in range(3):
    for name, source in SOURCES.items():
        lookup = cache.get(source, VOCABULARY)
        assert_same_masks(compile_source(source, VOCABULARY), lookup.compiled, seed=round)
        cache.flush()
    tiers.append(lookup.tier)
cache.close()
print(*tiers)
"""


def use(folder: Path, before: str = "", shell: str = "") -> tuple[list[str], str]:
    """Use a cache in a process of its own, prepared by a line of Python or, in a namespace, of the shell."""
    command = [sys.executable, "-W", "error", "-c", USER.format(before=before), str(folder)]
    if shell:
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'{shell} && exec "$@"', "sh", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.split(), done.stderr


def mounts(folder: Path, command: str) -> str:
    """A shell command that mounts; skips the test where nothing can be mounted, even in a namespace."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    trial = ["unshare", "--map-root-user", "--mount", "sh", "-c", command.format(folder)]
    if subprocess.run(trial, capture_output=True, timeout=20).returncode:
        pytest.skip("nothing can be mounted here")
    return command.format(folder)


@pytest.mark.parametrize("size", ["0", "64k", "256k", "400k"])
def test_a_full_disk(tmp_path: Path, size: str) -> None:
    """A file system with room for nothing, for the database, and for some entries."""
    size = {"0": "4k"}.get(size, size)
    tiers, said = use(tmp_path, shell=mounts(tmp_path, f"mount -t tmpfs -o size={size} tmpfs '{{}}'"))
    assert tiers == ["miss", "memory", "memory"]
    assert said.count("going on without it") == 1


def test_files_that_cannot_grow(folder: Path) -> None:
    """No file can grow beyond its size in a process, as on a disk that has just become full."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))"
    tiers, said = use(folder, before=limit)
    assert tiers[1:] == ["memory", "memory"]
    assert said.count("going on without it") == 1
    assert ask_all(folder) == ["disk"] * len(SOURCES)


@pytest.mark.parametrize("warm", [True, False])
def test_a_read_only_file_system(folder: Path, tmp_path: Path, warm: bool) -> None:
    """Mounted for reading, with entries and without: no user may write, root neither."""
    place = folder if warm else tmp_path / "empty"
    place.mkdir(exist_ok=True)
    tiers, said = use(place, shell=mounts(place, "mount --bind '{0}' '{0}' && mount -o remount,bind,ro '{0}'"))
    assert tiers == ["miss", "memory", "memory"]
    assert said.count("going on without it") == 1


def test_a_folder_below_a_file(tmp_path: Path) -> None:
    """A path that can never be a folder, whoever asks."""
    (tmp_path / "file").write_text("")
    tiers, said = use(tmp_path / "file" / "cache")
    assert tiers == ["miss", "memory", "memory"]
    assert said.count("going on without it") == 1


def test_a_folder_deleted_while_in_use(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody deletes the folder under a running process: it goes on, and writes into a new one."""
    cache = SchemaCache(folder)

    def get(source: Source) -> Lookup:
        return cache.get(source, VOCABULARY)

    assert get(LARGE).tier == "disk"
    shutil.rmtree(folder)
    compiled: CompiledSchema = get(SOURCES["strings"]).compiled
    assert_same_masks(FRESH["strings"], compiled, seed=0)
    cache.close()
    assert warnings(caplog) == []
    again = SchemaCache(folder)
    assert again.get(SOURCES["strings"], VOCABULARY).tier == "disk"
    again.close()
