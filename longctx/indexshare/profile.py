"""A model's recall profile: which heads index for it and how their choice is used.

A profile is measured once per model by `longctx models calibrate` and kept as JSON; those of the
registry's models ship in `profiles/`. It knows numbers and names, no tensors.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from longctx.errors import ModelError
from longctx.paths import data_dir

PROFILE_VERSION = 1


@dataclass(frozen=True)
class LeaderHead:
    """One attention head that indexes; `weight` multiplies its log-share of each block."""

    layer: int
    head: int
    weight: float


@dataclass(frozen=True)
class Profile:
    """Settings of recall for one model; token counts unless a name says otherwise.

    `decline_margin`: an answer is declined when the log-odds of the words that decline, against
    the likeliest other beginning, are above it, and otherwise not; 0 leaves it to the model.
    """

    model: str
    heads: tuple[LeaderHead, ...]
    window: int = 256
    block: int = 32
    preamble: str = ""
    question_format: str = "Question: {question}"
    lexical_weight: float = 0.4
    document_weight: float = 0.5
    top_blocks: int = 24
    neighbours: int = 1
    decline_margin: float = 0.0
    rerank_heads: tuple[LeaderHead, ...] = ()
    candidates: int = 96
    rerank_blocks: int = 14
    first_weight: float = 0.2
    measured: dict[str, Any] = field(default_factory=dict)
    version: int = PROFILE_VERSION

    @property
    def leader(self) -> int:
        """The deepest layer any head stands in: indexing runs up to its keys."""
        return max(head.layer for head in self.heads)

    def streams(self, heads: int, kv_heads: int) -> tuple[tuple[int, int], ...]:
        """The `(layer, kv_head)` pairs whose keys are kept, of a model with those head counts."""
        group = heads // kv_heads
        return tuple(sorted({(head.layer, head.head // group) for head in self.heads}))

    def index_digest(self) -> str:
        """Hash of everything that changes what is stored for a document."""
        kept = {
            "version": self.version,
            "heads": sorted({(head.layer, head.head) for head in self.heads}),
            "window": self.window,
            "block": self.block,
            "preamble": self.preamble,
        }
        return hashlib.sha256(json.dumps(kept).encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def parse_profile(text: str, where: str) -> Profile:
    """Read a profile's JSON. Raises `ModelError` that names `where` when it is no profile."""
    try:
        raw = json.loads(text)
        if raw.get("version") != PROFILE_VERSION:
            raise ModelError(
                f"{where}: a profile of version {raw.get('version')}, this longctx reads "
                f"{PROFILE_VERSION}; run longctx models calibrate again"
            )
        heads = _heads(raw["heads"])
        if not heads:
            raise ValueError("no heads")
        again = _heads(raw.get("rerank_heads", []))
        profile = Profile(model=str(raw["model"]), heads=heads, rerank_heads=again)
        for field_ in fields(Profile):
            if field_.name in raw and field_.name not in ("heads", "rerank_heads"):
                profile = replace(profile, **{field_.name: _typed(raw, profile, field_.name)})
        return profile
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{where}: not a readable profile ({error}); run longctx models calibrate again"
        ) from None


def _heads(raw: Any) -> tuple[LeaderHead, ...]:
    return tuple(LeaderHead(int(h["layer"]), int(h["head"]), float(h["weight"])) for h in raw)


def _typed(raw: dict[str, Any], default: Profile, name: str) -> Any:
    value, wanted = raw[name], type(getattr(default, name))
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise TypeError(f"{name} is {value!r}")
    return value


def shipped_profile(name: str) -> Profile | None:
    """The profile that comes with the package for a registry model, or None."""
    file = resources.files("longctx.indexshare").joinpath("profiles", f"{name}.json")
    if not file.is_file():
        return None
    return parse_profile(file.read_text(encoding="utf-8"), f"profiles/{name}.json")


def read_profile(path: Path) -> Profile:
    """A profile file of the user's. Raises `ModelError`."""
    try:
        return parse_profile(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ModelError(f"{path}: cannot read this profile ({error.strerror})") from None


def own_profile_path(digest: str) -> Path:
    """Where the profile of a model that ships without one is kept, by the model's digest."""
    return data_dir() / "profiles" / f"{digest[:24]}.json"


def find_profile(name: str, digest: str) -> Profile | None:
    """The user's own profile of a model, else the shipped one of its registry name, else None."""
    own = own_profile_path(digest)
    return read_profile(own) if own.exists() else shipped_profile(name)
