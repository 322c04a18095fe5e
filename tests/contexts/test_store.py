"""The store: one segment for one text, model and profile; damage is noted and mended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contexts.samples import document, same, segment
from longctx.contexts.segment import Segment
from longctx.contexts.store import SegmentStore, store_size
from longctx.indexshare.recall import IndexKeys
from longctx.paths import cache_dir

DIGEST = document("The quay.").digest


def files(root: Path) -> list[Path]:
    return sorted(file for file in root.rglob("*") if file.is_file())


@pytest.fixture
def store(tmp_path: Path) -> SegmentStore:
    return SegmentStore(tmp_path / "segments", "model", "profile")


def test_what_is_kept_is_found_again(store: SegmentStore, tmp_path: Path):
    assert store.get(DIGEST) is None

    kept = store.put(DIGEST, segment(70))

    assert same(kept, segment(70))
    later = SegmentStore(tmp_path / "segments", "model", "profile").get(DIGEST)
    assert later is not None
    assert same(later, segment(70))
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("other", [("other", "profile"), ("model", "other"), ("mode", "lprofile")])
def test_another_model_or_profile_has_its_own(
    store: SegmentStore, tmp_path: Path, other: tuple[str, str]
):
    store.put(DIGEST, segment(70))

    assert SegmentStore(tmp_path / "segments", *other).get(DIGEST) is None


def test_another_text_has_its_own(store: SegmentStore):
    store.put(DIGEST, segment(70))

    assert store.get(document("The quay!").digest) is None


def test_the_same_text_elsewhere_is_the_same(store: SegmentStore):
    store.put(document("The quay.", "a/b.txt").digest, segment(70))

    assert store.get(document("The quay.", "c.md", kind="markdown").digest) is not None


def test_a_damaged_file_is_noted_and_deleted(store: SegmentStore, tmp_path: Path):
    store.put(DIGEST, segment(70))
    store.put(document("Another.").digest, segment(33))
    (file,) = (file for file in files(tmp_path) if store.key(DIGEST) in file.name)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    assert store.get(DIGEST) is None

    assert len(store.damaged) == 1
    assert file.name in store.damaged[0]
    assert not file.exists()
    assert store.get(document("Another.").digest) is not None, "others stay"
    assert store.get(DIGEST) is None
    assert len(store.damaged) == 1, "noted once"
    store.put(DIGEST, segment(70))
    assert store.get(DIGEST) is not None


def test_in_memory_nothing_is_written(tmp_path: Path, home: Path):
    store = SegmentStore(None, "model", "profile")

    kept = store.put(DIGEST, segment(70))

    assert store.get(DIGEST) is kept
    assert store.get(document("Another.").digest) is None
    assert files(tmp_path) == []
    assert not home.exists()


def words(tokens: int) -> Segment:
    """A segment of words alone."""
    return replace(segment(tokens), keys=IndexKeys({}, {}))


@pytest.mark.parametrize("on_disk", [True, False])
def test_words_alone_are_no_index_for_attention(on_disk: bool, tmp_path: Path):
    store = SegmentStore(tmp_path if on_disk else None, "model", "profile")
    store.put(DIGEST, words(70))

    assert store.get(DIGEST) is None
    found = store.get(DIGEST, keys=False)
    assert found is not None
    assert same(found, words(70))

    store.put(DIGEST, segment(70))
    for keys in (True, False):
        found = store.get(DIGEST, keys)
        assert found is not None
        assert same(found, segment(70))
    assert len(files(tmp_path)) == on_disk, "the words alone are gone"


def test_a_whole_segment_without_keys_is_not_used(store: SegmentStore, tmp_path: Path):
    """As another version of this program might leave it."""
    store.put(DIGEST, words(70))
    (file,) = files(tmp_path)
    file.rename(file.with_suffix(".segment"))

    assert store.get(DIGEST) is None


def test_what_is_discarded_is_gone(store: SegmentStore, tmp_path: Path):
    store.put(DIGEST, segment(70))

    store.discard(DIGEST)

    assert store.get(DIGEST) is None
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path: Path):
    (tmp_path / "file").write_text("")
    store = SegmentStore(tmp_path / "file" / "segments", "model", "profile")
    assert store.get(DIGEST) is None

    store.put(DIGEST, segment(70))
    store.put(document("Another.").digest, segment(33))

    kept = store.get(DIGEST)
    assert kept is not None
    assert same(kept, segment(70))
    (warning,) = store.warnings
    assert warning.startswith("the index is not kept for the next time: ")
    assert "cannot create this folder (Not a directory)" in warning


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device"), "is full"),
        (OSError(30, "Read-only file system"), "Read-only file system"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
    ],
)
def test_a_disk_that_takes_nothing_costs_a_warning(
    store: SegmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
):
    tried = []

    def refuse(handle: int) -> None:
        tried.append(handle)
        raise error

    monkeypatch.setattr("longctx.atomic.os.fsync", refuse)

    store.put(DIGEST, segment(70))
    store.put(document("Another.").digest, segment(33))

    assert len(tried) == 1, "it is not tried again"
    assert store.get(DIGEST) is not None
    assert store.get(document("Another.").digest) is not None
    (warning,) = store.warnings
    assert told in warning
    assert files(tmp_path) == []


def test_an_empty_folder_in_a_segments_place_is_replaced(store: SegmentStore, tmp_path: Path):
    store.put(DIGEST, segment(70))
    (file,) = files(tmp_path)
    file.unlink()
    file.mkdir()

    assert store.get(DIGEST) is None
    store.put(DIGEST, segment(70))

    assert store.warnings == []
    assert file.is_file()


def test_a_full_folder_in_a_segments_place_is_left_alone(store: SegmentStore, tmp_path: Path):
    store.put(DIGEST, segment(70))
    (file,) = files(tmp_path)
    file.unlink()
    file.mkdir()
    (file / "precious.txt").write_text("mine")

    assert store.get(DIGEST) is None
    store.put(DIGEST, segment(70))
    store.put(document("Another.").digest, segment(33))

    assert store.get(DIGEST) is not None, "in memory"
    assert (file / "precious.txt").exists()
    (warning,) = store.warnings
    assert "a folder stands where an index file belongs" in warning
    later = SegmentStore(tmp_path / "segments", "model", "profile")
    assert later.get(document("Another.").digest) is not None, "the others are kept on disk"


def test_the_default_place_is_the_cache(home: Path):
    SegmentStore.default("model", "profile").put(DIGEST, segment(70))

    (file,) = files(home)
    assert cache_dir() in file.parents


def test_how_much_is_kept(home: Path):
    assert store_size() == (0, 0)
    store = SegmentStore.default("model", "profile")
    store.put(DIGEST, segment(70))
    store.put(document("Another.").digest, segment(33))
    store.put(document("Of words.").digest, words(33))

    count, size = store_size()

    assert count == 3
    assert size == sum(file.stat().st_size for file in files(home))
    assert store_size(home / "absent") == (0, 0)
