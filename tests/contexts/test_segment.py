"""Segments on disk: what is read is what was written, or an error; never anything else."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from contexts.samples import same, segment
from longctx.contexts.segment import SEGMENT_VERSION, Segment, joined, read_segment, write_segment
from longctx.errors import DoesNotFitError, StoreError
from longctx.indexshare.recall import IndexKeys

SMALL = segment(40, blocks=["harbour rent harbour", "crane"])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "small.segment"
    write_segment(path, SMALL)
    return path


def outcome(path: Path) -> str:
    """What reading this file comes to."""
    try:
        found = read_segment(path)
    except StoreError:
        return "refused"
    return "same" if same(found, SMALL) else "WRONG"


@pytest.mark.parametrize(
    "kept",
    [segment(1), segment(32), segment(33, blocks=["", "rent"]), segment(700, dim=64), SMALL],
    ids=["one token", "one block", "a short block", "many", "small"],
)
def test_what_is_written_is_read(kept: Segment, tmp_path: Path):
    path = tmp_path / "kept.segment"

    write_segment(path, kept)

    assert same(read_segment(path), kept)
    assert [file.name for file in tmp_path.iterdir()] == ["kept.segment"]


def test_keys_that_are_slices_are_written_whole(tmp_path: Path):
    wide = torch.arange(-60, 60, dtype=torch.int8).view(10, 12)
    kept = segment(10, dim=4)
    kept.keys.keys[1, 0] = wide[:, 4:8]

    write_segment(tmp_path / "a.segment", kept)

    assert torch.equal(read_segment(tmp_path / "a.segment").keys.keys[1, 0], wide[:, 4:8])


def test_words_alone_are_written_and_read(tmp_path: Path):
    kept = replace(SMALL, keys=IndexKeys({}, {}))

    write_segment(tmp_path / "a.words", kept)

    found = read_segment(tmp_path / "a.words")
    assert same(found, kept)
    assert not found.has_keys


def test_parts_are_joined(tmp_path: Path):
    first, second = (
        segment(64, 1, blocks=["harbour rent", "crane"]),
        segment(40, 2, blocks=["rent"]),
    )

    found = joined([first, second])

    assert found.tokens == 104
    assert found.blocks == 4
    assert found.postings.ptr.tolist() == [0, 2, 3, 4, 4]
    assert found.postings.terms[3] == first.postings.terms[1], "rent"
    assert torch.equal(found.keys.keys[1, 0][64:], second.keys.keys[1, 0])
    write_segment(tmp_path / "a.segment", found)
    assert same(read_segment(tmp_path / "a.segment"), found)
    assert same(joined([first]), first)


def test_a_cut_file_is_refused(written: Path):
    with written.open("r+b") as file:
        for size in range(written.stat().st_size - 1, -1, -7):
            file.truncate(size)
            assert outcome(written) == "refused", f"{size} bytes"


def test_a_file_with_more_behind_it_is_never_wrong(written: Path):
    with written.open("ab") as file:
        file.write(b"more")

    assert outcome(written) != "WRONG"


def test_a_flipped_bit_is_noticed(written: Path):
    """Every bit of the header, one bit of every byte of the arrays."""
    content = written.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    flips = [(at, bit) for at in range(header) for bit in range(8)]
    flips += [(at, at % 8) for at in range(header, len(content))]

    found: Counter[str] = Counter()
    with written.open("r+b", buffering=0) as file:
        for at, bit in flips:
            file.seek(at)
            file.write(bytes([content[at] ^ 1 << bit]))
            result = outcome(written)
            assert result != "WRONG", f"byte {at} of {content[:header]!r}, bit {bit}"
            assert result == "refused" or at < header, f"byte {at} of the arrays"
            found[result] += 1
            file.seek(at)
            file.write(content[at : at + 1])

    assert outcome(written) == "same"
    assert found["refused"] > 0.95 * len(flips)


def rewritten(path: Path, about: dict[str, str], drop: str = "") -> None:
    """The same arrays under other metadata, one perhaps left out."""
    with safe_open(path, framework="pt") as file:
        arrays = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata() | about
    arrays.pop(drop, None)
    save_file(arrays, path, metadata)


@pytest.mark.parametrize(
    "about",
    [
        {"tokens": "39"},
        {"tokens": "41"},
        {"tokens": "forty"},
        {"tokens": ""},
        {"checksum": "00000000"},
        {"format": ""},
        {"format": "longctx-segment-0"},
        {"format": f"longctx-segment-{SEGMENT_VERSION + 1}"},
    ],
)
def test_other_metadata_is_refused(written: Path, about: dict[str, str]):
    rewritten(written, about)

    with pytest.raises(StoreError, match=r"small\.segment: "):
        read_segment(written)


@pytest.mark.parametrize("drop", ["starts", "terms", "ptr", "keys.1.0", "scales.3.1"])
def test_a_missing_array_is_refused(written: Path, drop: str):
    rewritten(written, {}, drop)

    with pytest.raises(StoreError):
        read_segment(written)


def test_keys_under_another_heads_name_are_refused(written: Path):
    content = written.read_bytes()
    assert content.count(b"s.1.0") == 2, "keys and scales"

    written.write_bytes(content.replace(b"s.1.0", b"s.2.0"))

    with pytest.raises(StoreError, match="checksum"):
        read_segment(written)


def test_arrays_that_do_not_belong_together_are_refused(tmp_path: Path):
    """As a bug would write them: whole, with a right checksum."""
    path = tmp_path / "odd.segment"
    kept = segment(70)
    wrong = [
        Segment(71, kept.starts, kept.keys, kept.postings),
        Segment(70, kept.starts[:2], kept.keys, kept.postings),
        Segment(70, kept.starts, kept.keys, segment(20).postings),
        Segment(70, kept.starts.astype(np.int64), kept.keys, kept.postings),
    ]
    for odd in wrong:
        write_segment(path, odd)
        with pytest.raises(StoreError, match="damaged index segment"):
            read_segment(path)


def test_what_is_no_segment_is_refused(tmp_path: Path):
    path = tmp_path / "a.segment"
    header = json.dumps({"__metadata__": {}}).encode()
    for content in (b"", b"\0" * 8, b"text", header, len(header).to_bytes(8, "little") + header):
        path.write_bytes(content)
        with pytest.raises(StoreError, match=r"a\.segment"):
            read_segment(path)
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(StoreError):
            read_segment(place)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("longctx.atomic.os.fsync", full)

    with pytest.raises(DoesNotFitError, match="full"):
        write_segment(tmp_path / "a.segment", SMALL)

    assert list(tmp_path.iterdir()) == []
