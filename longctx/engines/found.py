"""Whether the evidence really holds an answer: asked of the model, decided by a measured rule."""

from __future__ import annotations

from longctx.indexshare.profile import FoundRule
from longctx.models.loaded import LoadedModel


class FoundJudge:
    """Decides for one model under its profile's rule."""

    room = 64  # tokens of the cache kept free for the second look

    def __init__(self, model: LoadedModel, rule: FoundRule):
        self.model, self.rule = model, rule
