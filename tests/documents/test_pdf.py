"""PDFs: pages and places, what has no text, and files that try to take the run down with them."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pypdf
import pytest
from pypdf.errors import DependencyError

from longctx.documents import Document, Skipped, read_documents
from longctx.documents.readers import READERS, pdf_worker
from longctx.documents.readers import pdf as reader_module
from longctx.documents.readers.pdf import PdfLimits, PdfReader
from longctx.documents.sniff import Kind


def read(path: Path, contents: bytes) -> Document | Skipped:
    path.write_bytes(contents)
    [result] = read_documents([path])
    return result


def reason(path: Path, contents: bytes) -> str:
    result = read(path, contents)
    assert isinstance(result, Skipped)
    return result.reason


def encrypted(contents: bytes, user: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(contents))
    writer.encrypt(user_password=user, owner_password="owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_each_page_is_marked(tmp_path, pdf):
    document = read(tmp_path / "a.pdf", pdf(["first page\nsecond line", "the last page"]))
    assert isinstance(document, Document)
    assert document.kind == "pdf"
    assert document.text == "first page\nsecond line\nthe last page\n"
    assert document.warnings == ()
    for words, page in [("second", 1), ("last", 2)]:
        start = document.text.index(words)
        assert document.place(start, start + len(words)).page == page


def test_broken_words_are_mended(tmp_path, pdf):
    document = read(tmp_path / "a.pdf", pdf(["this agree-\nment is one"]))
    assert isinstance(document, Document)
    assert document.text == "this agreement\nis one\n"


def test_pages_without_text_are_named(tmp_path, pdf):
    document = read(tmp_path / "a.pdf", pdf(["one", "two", "", "four", "", "", "", "eight"]))
    assert isinstance(document, Document)
    assert document.warnings == ("pages 3, 5-7 have no text layer",)
    assert [mark.page for mark in document.marks] == [1, 2, 4, 8]
    assert document.place(document.text.index("eight"), len(document.text)).page == 8


def test_one_page_without_text_is_named(tmp_path, pdf):
    document = read(tmp_path / "a.pdf", pdf(["one", ""]))
    assert isinstance(document, Document)
    assert document.warnings == ("page 2 has no text layer",)


def test_a_scan_is_skipped(tmp_path, pdf):
    assert reason(tmp_path / "a.pdf", pdf(["", ""])) == "no text layer"


def test_a_file_locked_for_changes_only_is_read(tmp_path, pdf):
    document = read(tmp_path / "a.pdf", encrypted(pdf(["open to all"]), user=""))
    assert isinstance(document, Document)
    assert document.text == "open to all\n"


def test_a_file_with_a_password_is_skipped(tmp_path, pdf):
    assert reason(tmp_path / "a.pdf", encrypted(pdf(["secret"]), user="pass")) == "encrypted"


def test_a_missing_cipher_counts_as_encrypted():
    error = DependencyError("cryptography>=3.1 is required for AES algorithm")
    assert pdf_worker._reason(error).startswith("encrypted: cryptography")


@pytest.mark.parametrize("keep", [8, 60, 200])
def test_a_damaged_file_is_skipped_and_nothing_reaches_stderr(tmp_path, pdf, capfd, keep):
    assert reason(tmp_path / "a.pdf", pdf(["words"])[:keep]).startswith("damaged PDF: ")
    assert capfd.readouterr() == ("", "")


def test_a_file_that_lost_its_table_is_still_read(tmp_path, pdf, capfd):
    contents = pdf(["words"]).replace(b"startxref\n", b"startxref\n9")
    document = read(tmp_path / "a.pdf", contents)
    assert isinstance(document, Document)
    assert document.text == "words\n"
    assert capfd.readouterr() == ("", "")


def with_limits(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    monkeypatch.setitem(READERS, Kind.PDF, lambda: PdfReader(PdfLimits(**limits)))


def with_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Let another script be the child process, or start it."""
    worker = tmp_path / "worker.py"
    worker.write_text(script)
    monkeypatch.setattr(reader_module, "_WORKER", worker)


HANGS_ON_REQUEST = f"""
import runpy, time
from pypdf import PageObject
extract = PageObject.extract_text
def hang(page):
    text = extract(page)
    if "hang" in text:
        time.sleep(600)
    return text
PageObject.extract_text = hang
runpy.run_path({pdf_worker.__file__!r}, run_name="__main__")
"""


def test_a_hanging_page_costs_only_what_follows_it(tmp_path, pdf, monkeypatch):
    with_limits(monkeypatch, page_seconds=2)
    with_worker(monkeypatch, tmp_path, HANGS_ON_REQUEST)
    (tmp_path / "a.pdf").write_bytes(pdf(["first", "hang", "third"]))
    (tmp_path / "b.pdf").write_bytes(pdf(["the next file"]))

    hanging, following = read_documents([tmp_path / "a.pdf", tmp_path / "b.pdf"])

    assert isinstance(hanging, Document)
    assert hanging.text == "first\n"
    assert hanging.warnings == ("pages 2-3 not read: timed out: no page in 2 s",)
    assert isinstance(following, Document)
    assert following.text == "the next file\n"


def test_a_file_that_hangs_at_once_is_skipped(tmp_path, pdf, monkeypatch):
    with_limits(monkeypatch, page_seconds=20, document_seconds=1)
    with_worker(monkeypatch, tmp_path, HANGS_ON_REQUEST)
    assert reason(tmp_path / "a.pdf", pdf(["hang"])) == "timed out: 1 s for the whole file"


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs alarms")
def test_a_hanging_child_without_a_parent_ends_itself(tmp_path, pdf):
    (tmp_path / "worker.py").write_text(HANGS_ON_REQUEST)
    (tmp_path / "a.pdf").write_bytes(pdf(["hang"]))
    child = subprocess.run(
        [sys.executable, tmp_path / "worker.py", "2000000000", "1"],
        input=json.dumps({"path": str(tmp_path / "a.pdf")}),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert child.returncode == -signal.SIGALRM


def test_a_reader_that_dies_costs_only_its_file(tmp_path, pdf, monkeypatch):
    with_worker(monkeypatch, tmp_path, "import sys; sys.stdin.readline(); sys.exit(3)")
    (tmp_path / "a.pdf").write_bytes(pdf(["words"]))
    (tmp_path / "b.txt").write_text("plain words")
    skipped, document = read_documents([tmp_path / "a.pdf", tmp_path / "b.txt"])
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "damaged PDF: its reader ended (3)"
    assert isinstance(document, Document)


def test_a_file_that_needs_too_much_memory_is_skipped(tmp_path, pdf, monkeypatch):
    with_limits(monkeypatch, memory_bytes=30_000_000)  # not even enough to import pypdf
    assert reason(tmp_path / "a.pdf", pdf(["words"])).startswith("too large: ")


def test_too_much_text_is_refused(tmp_path, pdf, monkeypatch):
    with_limits(monkeypatch, characters=20)
    (tmp_path / "a.pdf").write_bytes(pdf(["a line of words " * 5]))
    [skipped] = read_documents([tmp_path])
    assert isinstance(skipped, Skipped)
    assert skipped.reason.startswith("too large: ")


def test_one_child_reads_all_files_and_ends_with_the_run(tmp_path, pdf, monkeypatch):
    reader = PdfReader()
    monkeypatch.setitem(READERS, Kind.PDF, lambda: reader)
    for name in ("a.pdf", "b.pdf"):
        (tmp_path / name).write_bytes(pdf([name]))
    run = read_documents([tmp_path])
    next(run)
    child = reader._child
    assert child is not None
    next(run)
    assert reader._child is child
    assert list(run) == []
    assert reader._child is None
    assert child._process.returncode is not None
