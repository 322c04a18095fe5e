"""What a file is, from its name and its first bytes: the kind decides which reader gets it.

Contents outrank names where the two can be told apart. It opens nothing.
"""

from __future__ import annotations

import codecs
from enum import StrEnum
from pathlib import PurePath

from longctx.documents.encodings import looks_binary
from longctx.documents.reasons import BINARY, EMPTY, UNSUPPORTED, Unreadable, because

HEAD_BYTES = 8192


class Kind(StrEnum):
    """What a document was read as."""

    TEXT = "text"
    MARKDOWN = "markdown"
    CODE = "code"
    PDF = "pdf"
    VTT = "vtt"
    SRT = "srt"


_BY_SUFFIX = {
    ".md": Kind.MARKDOWN,
    ".markdown": Kind.MARKDOWN,
    ".mdx": Kind.MARKDOWN,
    ".pdf": Kind.PDF,
    ".vtt": Kind.VTT,
    ".srt": Kind.SRT,
}


def _suffixes(names: str) -> frozenset[str]:
    return frozenset(f".{name}" for name in names.split())


_CODE_SUFFIXES = _suffixes("""
    ada asm awk bash bat bzl c cc clj cljs cmake cpp cr cs css cu cuh cxx d dart el elm erl ex exs f
    f90 fish fs go gradle graphql groovy h hcl hh hpp hrl hs htm html hxx inl ipynb java jl js json
    json5 jsonc jsx kt kts less lisp lua m mjs mk ml mli mm nim nix pas php pl pm proto ps1 pxd py
    pyi pyx r rb rkt rs s sass scala scm scss sh sol sql sv svelte swift tcl tf toml ts tsx v vb vhd
    vhdl vue wat xml xsl yaml yml zig zsh
""")
_CODE_NAMES = frozenset({"makefile", "gnumakefile", "dockerfile", "cmakelists.txt", "jenkinsfile"})

# Formats that hold text or pictures of text, and that no reader here can read yet.
_UNREAD_SUFFIXES = _suffixes("""
    docx docm dotx xlsx xlsm xlsb pptx pptm ppsx odt ods odp odg epub mobi azw3 rtf djvu xps
    zip gz tgz bz2 tbz2 xz txz zst lz4 7z rar tar jar whl parquet sqlite
    png jpg jpeg gif webp bmp tif tiff ico heic heif avif psd
    mp3 m4a wav flac ogg opus mp4 m4v mov mkv avi webm wmv
""")
# Names that old binary formats share with plain text: the first bytes decide.
_OLD_OFFICE_SUFFIXES = _suffixes("doc xls ppt msg vsd pub")
_OLD_OFFICE_MAGIC = bytes.fromhex("d0cf11e0a1b11ae1")


def sniff(name: str, head: bytes) -> Kind:
    """The kind of a file called `name` that begins with `head` (its first HEAD_BYTES, or all).

    Raises Unreadable: `empty`, `binary`, or `unsupported format: .ext`.
    """
    path = PurePath(name)
    suffix = path.suffix.lower()
    if not head or head in (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise Unreadable(EMPTY)
    if suffix == ".pdf" or head.startswith(b"%PDF-"):
        return Kind.PDF
    if suffix in _UNREAD_SUFFIXES:
        raise Unreadable(because(UNSUPPORTED, suffix))
    if suffix in _OLD_OFFICE_SUFFIXES and head.startswith(_OLD_OFFICE_MAGIC):
        raise Unreadable(because(UNSUPPORTED, suffix))
    if looks_binary(head):
        raise Unreadable(BINARY)
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    if head.startswith((b"WEBVTT\n", b"WEBVTT\r", b"WEBVTT ")):
        return Kind.VTT
    if suffix in _CODE_SUFFIXES or path.name.lower() in _CODE_NAMES or head.startswith(b"#!"):
        return Kind.CODE
    return Kind.TEXT
