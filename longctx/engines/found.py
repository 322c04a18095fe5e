"""Whether the evidence really holds an answer: the model is asked, a measured rule decides.

Small models rather invent than decline. After the first tokens of an answer, and before any of
them is shown, the model is asked whether the excerpts state it. Its yes-or-no margin and the
probabilities of its own words enter a logistic rule that `calibrate`d questions fitted.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from longctx.engines.prompt import NOT_FOUND
from longctx.indexshare.profile import FoundRule
from longctx.models.chat import ChatTemplate, encode_chat
from longctx.models.decoder import KVCache
from longctx.models.loaded import LoadedModel

CHECK = "Is this answer stated in the excerpts above? Reply with yes or no only."
DRAFT_TOKENS = 24
CHECK_TOKENS = 96


class FoundJudge:
    """Decides for one model under its profile's rule; a rule without weights lets all pass."""

    def __init__(self, model: LoadedModel, template: ChatTemplate, rule: FoundRule):
        self.model, self.template, self.rule = model, template, rule
        tokenizer = model.tokenizer
        self._yes = [tokenizer.encode_text(word)[0][0] for word in ("yes", "Yes")]
        self._no = [tokenizer.encode_text(word)[0][0] for word in ("no", "No")]
        self._decline = tokenizer.encode_text(NOT_FOUND)[0][0]

    @property
    def room(self) -> int:
        """Tokens of the cache kept free for the second look."""
        return CHECK_TOKENS if self.active else 0

    @property
    def active(self) -> bool:
        return bool(self.rule.weights)

    def supported(self, features: dict[str, float]) -> bool:
        """Apply the rule to measured features."""
        score = self.rule.bias
        for name, weight in self.rule.weights.items():
            score += weight * features[name]
        return score > 0

    def features(
        self,
        cache: KVCache,
        prompt: Sequence[int],
        chat: Sequence[dict[str, str]],
        draft: Sequence[int],
        shares: Sequence[float],
        first: Tensor,
    ) -> dict[str, float]:
        """Measure a draft answer; the cache holds `prompt` on return, as it was before the draft.

        `shares` are the draft's log-probabilities, `first` the logits `[vocab]` it began from.
        Features: `stated`, log-odds of yes against no; `mean`, the draft's mean log-probability;
        `decline`, the log-probability of beginning with the words that decline.
        """
        asked = [
            *chat,
            {"role": "assistant", "content": self.model.tokenizer.decode(draft)},
            {"role": "user", "content": CHECK},
        ]
        ids = encode_chat(self.model.tokenizer, self.template, asked)
        same = 0
        while same < min(len(prompt), len(ids) - 1) and ids[same] == prompt[same]:
            same += 1
        cache.crop(same)
        logits = self.model.decoder.forward(ids[same:], cache, last_only=True)[0]
        cache.crop(same)
        if same < len(prompt):
            self.model.decoder.forward(prompt[same:], cache, last_only=True)
        shares_of_words = logits.float().log_softmax(dim=-1)
        yes = torch.logsumexp(shares_of_words[self._yes], dim=0)
        no = torch.logsumexp(shares_of_words[self._no], dim=0)
        return {
            "stated": float(yes - no),
            "mean": sum(shares) / max(1, len(shares)),
            "decline": float(first.float().log_softmax(dim=-1)[self._decline]),
        }
