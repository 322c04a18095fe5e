"""The store: one segment for one text, model and profile; damage is noted and mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from contexts.samples import document, same, segment
from longctx.contexts.store import SegmentStore, store_size
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


def test_the_default_place_is_the_cache(home: Path):
    SegmentStore.default("model", "profile").put(DIGEST, segment(70))

    (file,) = files(home)
    assert cache_dir() in file.parents


def test_how_much_is_kept(home: Path):
    assert store_size() == (0, 0)
    store = SegmentStore.default("model", "profile")
    store.put(DIGEST, segment(70))
    store.put(document("Another.").digest, segment(33))

    count, size = store_size()

    assert count == 2
    assert size == sum(file.stat().st_size for file in files(home))
    assert store_size(home / "absent") == (0, 0)
