"""Guessing the encoding of text from before Unicode.

charset-normalizer tells scripts apart well (Cyrillic, Greek, Japanese, …) but mixes up the code
pages of the Latin script, where French may come out with Baltic letters. Those are decided here by
asking which page makes the letters of one language.
"""

from __future__ import annotations

import re

# What each language writes beyond a-z, per code page, likeliest page first.
_LATIN = {
    "windows-1252": (
        "àâæçéèêëîïôœùûüÿ",  # French
        "äöüß",  # German
        "áéíñóúü¿¡ªº",  # Spanish
        "áâãàçéêíóôõúüªº",  # Portuguese
        "àèéìíîòóù",  # Italian
        "àçèéíïòóúü·",  # Catalan
        "åäöéàü",  # Swedish, Finnish
        "æøåéèêóòâô",  # Danish, Norwegian
        "áðéíóúýþæö",  # Icelandic
        "éèëïóöüáíúê",  # Dutch
    ),
    "windows-1250": (
        "ąćęłńóśźż",  # Polish
        "áčďéěíňóřšťúůýž",  # Czech
        "áäčďéíĺľňóôŕšťúýž",  # Slovak
        "áéíóöőúüű",  # Hungarian
        "čćđšž",  # Croatian, Slovene
        "ăâîşţ",  # Romanian
    ),
    "iso-8859-2": ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áéíóöőúüű"),
    "windows-1254": ("ç\u011f\u0131öşüâîûi\u0307",),  # Turkish
    "windows-1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),  # Lithuanian, Latvian, Estonian
    "cp850": ("àâæçéèêëîïôùûüÿ", "äöüß", "áéíñóúü¿¡ªº", "åäöéà", "æøåé"),
    "mac_roman": ("àâæçéèêëîïôœùûüÿ", "äöüß", "áéíñóúü¿¡ªº", "åäöéà", "æøåé"),
}
# Punctuation and signs that the pages share, so that they speak for none of them.
_NEUTRAL = frozenset(
    "\u2018\u2019\u201a\u201c\u201d\u201e\u2013\u2014\u2026\u2039\u203a«»€£¥§°©®™•·\xb4\xa0\xad†‡\xd7±"
)
_LATIN_FAMILIES = re.compile(
    "ascii|latin_1|cp125[02478]|cp(437|500|775|85[0278]|86[0135])|hp_roman8"
    "|iso8859_(2|3|4|9|10|13|14|15|16)|mac_(roman|latin2|iceland|turkish)"
)


def guess_encoding(data: bytes) -> str | None:
    """A codec that decodes `data` strictly and likely rightly, or None when none does."""
    from charset_normalizer import from_bytes  # 20 ms to import, and most runs never need it

    best = from_bytes(data).best()
    if best is None or _LATIN_FAMILIES.fullmatch(best.encoding):
        latin = _best_latin(data)
        if latin is not None:
            return latin
    return None if best is None else best.encoding


def _best_latin(data: bytes) -> str | None:
    """The Latin code page whose reading is best explained by one language; a tie goes to the
    first. None when even the best explains less than half of the characters beyond ASCII."""
    best, best_share = None, 0.5
    for encoding, alphabets in _LATIN.items():
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        beyond = [char for char in text.lower() if char > "\x7f" and char not in _NEUTRAL]
        if not beyond:
            return encoding
        fitting = max(sum(char in alphabet for char in beyond) for alphabet in alphabets)
        if fitting / len(beyond) > best_share:
            best, best_share = encoding, fitting / len(beyond)
    return best
