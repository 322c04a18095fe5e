"""Messages to a prompt in the form a model was trained on, without trusting what they say.

Control tokens come from the template's own text only: the contents of messages (a user's words, a
folder of documents) are encoded apart, as plain text. It knows no models and no documents.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from longctx.errors import ModelError

if TYPE_CHECKING:
    from longctx.models.tokenizer import TextTokenizer

Messages = Sequence[Mapping[str, Any]]

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PLAIN = (
    "{% for message in messages %}{% if message.role == 'system' %}{{ message.content }}\n\n"
    "{% else %}{{ message.role | capitalize }}: {{ message.content }}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
ROLES = ("system", "user", "assistant", "tool")
_SPARE_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Piece:
    """A stretch of a rendered prompt: the template's own text, or text out of a message."""

    text: str
    from_message: bool


class ChatTemplate:
    """A model's chat template; `bos` and `eos` are what it calls `bos_token` and `eos_token`."""

    def __init__(self, source: str, bos: str | None = None, eos: str | None = None):
        self.source, self.bos, self.eos = source, bos or "", eos or ""

    @classmethod
    def for_tokenizer(cls, tokenizer: TextTokenizer) -> ChatTemplate:
        """The template stored with the tokenizer, else ChatML if it has its tokens, else plain."""
        source = tokenizer.chat_template
        if source is None:
            source = PLAIN if tokenizer.token_id("<|im_start|>") is None else CHATML
        eos = tokenizer.eos_ids[0] if tokenizer.eos_ids else None
        return cls(source, tokenizer.token(tokenizer.bos_id), tokenizer.token(eos))

    def render(self, messages: Messages, add_generation_prompt: bool = True, **kw: Any) -> str:
        """The prompt as text. `kw` are further variables of the template (`enable_thinking`).

        Raises `ModelError` for a template that is wrong, refuses the messages, or does too much.
        Encoding this text would let messages forge control tokens: prompts use `encode_chat`.
        """
        from longctx.models.chat_sandbox import ChatSandbox

        sandbox = ChatSandbox(_SPARE_CHARACTERS + 4 * _length(messages))
        variables = {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self.bos,
            "eos_token": self.eos,
            **kw,
        }
        try:
            return sandbox.output(self.source, variables)
        except Exception as error:  # the template is a program: it can fail in any way
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ModelError(
                f"the model's chat template does not work ({reason}); choose another model"
            ) from None

    def pieces(
        self, messages: Messages, add_generation_prompt: bool = True, **kw: Any
    ) -> list[Piece]:
        """The rendered prompt, split into the template's text and the messages' strings.

        The template sees a random number in place of every string but roles, so it cannot change
        them (`content | trim` leaves the content as it was) and they cannot change its course.
        A system message the template refuses or drops goes in front of the first user message.
        """
        try:
            return self._pieces(messages, add_generation_prompt, kw)
        except ModelError:
            merged = _merge_system(messages)
            if merged is None:
                raise
            return self._pieces(merged, add_generation_prompt, kw)

    def _pieces(
        self, messages: Messages, add_generation_prompt: bool, kw: dict[str, Any]
    ) -> list[Piece]:
        held = _Placeholders()
        hidden = [held.hide(message) for message in messages]
        rendered = self.render(hidden, add_generation_prompt, **kw)
        for message in hidden:
            content = message.get("content")
            if message["role"] in ("system", "user") and content and content not in rendered:
                raise ModelError(
                    f"the model's chat template leaves out the {message['role']} message; "
                    "choose another model"
                )
        return held.split(rendered)


def encode_chat(
    tokenizer: TextTokenizer,
    template: ChatTemplate,
    messages: Messages,
    add_generation_prompt: bool = True,
    **kw: Any,
) -> list[int]:
    """Token ids of a chat in which only the template can produce control tokens.

    Every piece is encoded alone and the ids are joined, so no merge spans the border between the
    template's text and a message's; blanks before a message are encoded with it, because
    vocabularies hold words with their leading space. BOS comes first where the model expects one.
    Raises `ModelError` for a bad template or an unknown role.
    """
    return locate_chat(tokenizer, template, messages, add_generation_prompt, **kw)[0]


def locate_chat(
    tokenizer: TextTokenizer,
    template: ChatTemplate,
    messages: Messages,
    add_generation_prompt: bool = True,
    **kw: Any,
) -> tuple[list[int], list[int]]:
    """As `encode_chat`, with the character of the last message at which each token begins.

    The second list has -1 for tokens of the template and of earlier messages.
    """
    ids: list[int] = []
    begins: list[int] = []
    blanks = ""
    for piece in template.pieces(messages, add_generation_prompt, **kw):
        continued = bool(ids) and ids[-1] not in tokenizer.control_ids
        if piece.from_message:
            text = blanks + piece.text
            found, offsets = tokenizer.encode_text(text, continued or bool(blanks))
            begins = [-1] * len(ids) + [max(0, a - len(blanks)) for a, _ in offsets]
            ids += found
            blanks = ""
        else:
            text = piece.text.rstrip(" ")
            blanks = piece.text[len(text) :]
            ids += tokenizer.encode_control(text, continued)
    if blanks:
        ids += tokenizer.encode_control(blanks, continued=True)
    begins += [-1] * (len(ids) - len(begins))
    if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
        begins.insert(0, -1)
    return ids, begins


@dataclass(frozen=True)
class CutChat:
    """A chat's token ids in two parts that never share a token.

    `head` ends with the text the cut was asked behind; `begins[i]` is the character of that text
    at which token i of `head` begins, -1 for what comes before it. `tail` are the ids behind it.
    `lead` is what stands before that text: `head` depends on nothing else.
    """

    head: list[int]
    begins: list[int]
    tail: list[int]
    lead: str


def cut_chat(
    tokenizer: TextTokenizer,
    template: ChatTemplate,
    messages: Messages,
    opening: str,
    known: CutChat | None = None,
    add_generation_prompt: bool = True,
    **kw: Any,
) -> CutChat:
    """Encode a chat as `encode_chat` does, cut behind `opening`, with which its first message
    begins. What stands before the cut does not depend on anything behind it.

    `known` is an earlier cut behind the same opening: where the same text leads to it, its head is
    taken as it is, since encoding a folder of documents takes seconds. Raises `ModelError` as
    `encode_chat`, and where the template puts other text first.
    """
    head: list[int] = []
    begins: list[int] = []
    tail: list[int] = []
    blanks, lead, found = "", "", False
    for piece in template.pieces(messages, add_generation_prompt, **kw):
        ids = tail if found else head
        continued = found or (bool(ids) and ids[-1] not in tokenizer.control_ids)
        begin = not found and piece.from_message and piece.text.startswith(opening)
        lead += "" if found or begin else piece.text
        if not piece.from_message:
            text = piece.text.rstrip(" ")
            ids += tokenizer.encode_control(blanks + text, continued)
            blanks = piece.text[len(text) :]
        elif not begin:
            ids += tokenizer.encode_text(blanks + piece.text, continued or bool(blanks))[0]
            blanks = ""
        else:
            if known is None or known.lead != lead:
                new, offsets = tokenizer.encode_text(blanks + opening, continued or bool(blanks))
                begins = [-1] * len(head) + [max(0, start - len(blanks)) for start, _ in offsets]
                head += new
            rest = piece.text[len(opening) :]
            tail += tokenizer.encode_text(rest, continued=True)[0] if rest else []
            blanks, found = "", True
    if not found:
        raise ModelError("the model's chat template changes its messages; choose another model")
    if blanks:
        tail += tokenizer.encode_control(blanks, continued=True)
    if known is not None and known.lead == lead:
        return CutChat(known.head, known.begins, tail, lead)
    if tokenizer.add_bos and tokenizer.bos_id is not None and head[:1] != [tokenizer.bos_id]:
        head.insert(0, tokenizer.bos_id)
        begins.insert(0, -1)
    return CutChat(head, begins, tail, lead)


class _Placeholders:
    """Random numbers standing for strings: digits survive trim, upper, tojson and escaping."""

    def __init__(self) -> None:
        self._seed = f"{secrets.randbelow(10**38):038d}"
        self._strings: list[str] = []

    def hide(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message with every string but its role replaced; empty ones stay, for `if content`."""
        if message.get("role") not in ROLES:
            raise ModelError(f"message role {message.get('role')!r} is not one of {ROLES}")
        return {k: v if k == "role" else self._hide(v) for k, v in message.items()}

    def _hide(self, value: Any) -> Any:
        if isinstance(value, str) and value:
            self._strings.append(value)
            return f"{self._seed}{len(self._strings) - 1:06d}"
        if isinstance(value, Mapping):
            return {key: self._hide(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._hide(inner) for inner in value]
        return value

    def split(self, rendered: str) -> list[Piece]:
        """Put the strings back, as pieces of their own."""
        parts = re.split(rf"{self._seed}(\d{{6}})", rendered)
        pieces = []
        for i, part in enumerate(parts):
            from_message = i % 2 == 1
            text = self._strings[int(part)] if from_message else part
            if text:
                pieces.append(Piece(text, from_message))
        return pieces


def _merge_system(messages: Messages) -> Messages | None:
    """The system message put in front of the first user message; None if there are not both."""
    if len(messages) < 2 or [m.get("role") for m in messages[:2]] != ["system", "user"]:
        return None
    system, user, *rest = messages
    return [{**user, "content": f"{system['content']}\n\n{user['content']}"}, *rest]


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_length, value.values()))
    return sum(map(_length, value)) if isinstance(value, list | tuple) else 0
