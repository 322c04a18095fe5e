"""A real model, read from its quantised file by us and, independently, by `transformers`.

Everything of the chain is real here: the file is fetched by the model's name, converted, mapped
and run. Where it cannot be fetched the tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from decoder_samples import difference, logits_of
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from longctx.errors import DoesNotFitError, ModelError
from longctx.models.loaded import LoadedModel, load
from longctx.models.registry import resolve

pytestmark = pytest.mark.network

MODEL = "smollm2-135m"
PROMPT = (
    "The harbour master keeps a log of every ship. On Monday the Petrel arrived with timber, "
    "on Tuesday the Osprey with salt, and on Wednesday nobody came because of the storm. "
    "The harbour master wrote that the"
)
ANSWER_TOKENS = 24


@pytest.fixture(scope="module")
def file() -> Path:
    try:
        return resolve(MODEL).path
    except (ModelError, DoesNotFitError) as error:
        pytest.skip(f"{MODEL} cannot be fetched here: {error}")


@pytest.fixture(scope="module")
def ours(file: Path, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LONGCTX_HOME", str(tmp_path_factory.mktemp("home")))  # convert it afresh
        model = load(str(file), device="cpu", dtype="float32")
        assert isinstance(model, LoadedModel)
        return model


@pytest.fixture(scope="module")
def theirs(file: Path) -> LlamaForCausalLM:
    # from_pretrained(gguf_file=...) does just this, but wants another package installed
    config = LlamaConfig(**load_gguf_checkpoint(str(file))["config"])
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).eval()
    tensors = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert missing == ["lm_head.weight"]  # it is the embedding
    assert not unexpected
    model.tie_weights()
    return model


@pytest.fixture(scope="module")
def prompt(ours: LoadedModel) -> list[int]:
    return ours.tokenizer.encode_text(PROMPT)[0]


def test_the_logits_agree(ours: LoadedModel, theirs: LlamaForCausalLM, prompt: list[int]):
    expected = logits_of(theirs, prompt)

    found = ours.forward(prompt)

    assert expected.std() > 1  # of a model that says something
    assert difference(found, expected) < 1e-3


def test_greedy_answers_agree(ours: LoadedModel, theirs: LlamaForCausalLM, prompt: list[int]):
    cache = ours.decoder.new_cache(len(prompt) + ANSWER_TOKENS)
    logits = ours.decoder.forward(prompt, cache, last_only=True)

    answer: list[int] = []
    for _ in range(ANSWER_TOKENS):
        answer.append(int(logits[-1].argmax()))
        logits = ours.decoder.forward(answer[-1:], cache)

    # each token is what they would say after those before it
    expected = logits_of(theirs, prompt + answer)[len(prompt) - 1 : -1].argmax(-1)
    assert answer == expected.tolist()
    assert ours.tokenizer.decode(answer).isprintable()


def test_half_precision_says_the_same(
    file: Path,
    ours: LoadedModel,
    prompt: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path))
    exact = ours.forward(prompt)

    half = load(str(file), device="cpu", dtype="bfloat16").forward(prompt)

    assert (half - exact).square().mean() < 0.005 * exact.square().mean()
    assert (half.argmax(-1) == exact.argmax(-1)).float().mean() > 0.9
