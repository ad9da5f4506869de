"""Token ids and text equal those of `transformers`, and broken files are named."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, processors
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast

from quire.text import tokenizer
from quire.text.token_pieces import byte_level_alphabet, decode_complete
from quire.text.tokenizer import Tokenizer, encode_bad_words
from unprivileged import open_folder, unprivileged

SAMPLES = [
    "The capital of France is",
    " leading space",
    "<s>[INST] <|im_start|>user 안녕 <|im_end|></s>",
    "é한😀 \n\t  x",
    "",
    "<tool 도구> call",
]
WriteModelDir = Callable[..., Path]
Backends = dict[str, tokenizers.Tokenizer]
ADDED_TOKEN = {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": False}
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}


def reference(directory: Path) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(directory)


def assert_same(ours: Tokenizer, theirs: Any, samples: list[str] = SAMPLES) -> None:
    for add in (True, False):
        expected = [theirs.encode(text, add_special_tokens=add) for text in samples]
        assert [ours.encode(text, add_special_tokens=add) for text in samples] == expected
        assert ours.encode_batch(samples, add_special_tokens=add) == expected
        for ids in expected:
            for skip in (True, False):
                assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(
                    ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
                )
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)
    assert ours.pad_token_id == theirs.pad_token_id
    assert ours.special_ids == {index for index, token in theirs.added_tokens_decoder.items() if token.special}
    assert ours.vocab_size == len(theirs)


@pytest.mark.parametrize("name", ["byte_level", "sentencepiece", "unigram", "word_piece"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        NAMES,
        {**NAMES, "add_bos_token": False},
        {**NAMES, "add_bos_token": True, "add_eos_token": True},
        {"bos_token": None, "eos_token": ADDED_TOKEN, "add_bos_token": True},
        {**NAMES, "additional_special_tokens": ["<|im_end|>"]},
    ],
)
def test_ids_and_text_are_those_of_transformers(
    backends: Backends, write_model_dir: WriteModelDir, name: str, settings: dict[str, Any]
) -> None:
    directory = write_model_dir(
        tokenizer_json=backends[name],
        tokenizer_config_json={**settings, "tokenizer_class": "PreTrainedTokenizerFast"},
    )
    assert_same(Tokenizer.from_dir(directory), reference(directory))


def test_tokens_that_only_the_settings_name_are_added(backends: Backends, write_model_dir: WriteModelDir) -> None:
    size = backends["byte_level"].get_vocab_size()
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    directory = write_model_dir(
        tokenizer_json=backends["byte_level"],
        tokenizer_config_json={
            **NAMES,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "added_tokens_decoder": {
                str(size + 1): {"content": "<plain>", "special": False, **flags},
                str(size): {"content": "<think>", "special": True, **flags},
                "1": {"content": "</s>", "special": True, **flags},
                str(size - 1): {"content": "<tool 도구>", "special": True, **flags},
            },
        },
    )
    ours = Tokenizer.from_dir(directory)
    assert_same(ours, reference(directory), [*SAMPLES, "a<think>b<plain>c"])
    assert ours.encode("<think><plain>", add_special_tokens=False) == [size, size + 1]


def test_special_tokens_map_names_what_the_settings_do_not(backends: Backends, write_model_dir: WriteModelDir) -> None:
    directory = write_model_dir(
        tokenizer_json=backends["sentencepiece"],
        tokenizer_config_json={"tokenizer_class": "PreTrainedTokenizerFast"},
        special_tokens_map_json={"bos_token": "<s>", "eos_token": {"content": "<|im_end|>", "lstrip": False}},
    )
    assert_same(Tokenizer.from_dir(directory), reference(directory))


def test_the_model_config_names_what_no_tokenizer_file_names(
    backends: Backends, write_model_dir: WriteModelDir
) -> None:
    directory = write_model_dir(
        tokenizer_json=backends["byte_level"], config_json={"bos_token_id": 0, "eos_token_id": [3, 1]}
    )
    tokenizer = Tokenizer.from_dir(directory)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 3, None)


def test_a_named_token_without_an_id_is_left_out(backends: Backends, write_model_dir: WriteModelDir) -> None:
    directory = write_model_dir(tokenizer_json=backends["byte_level"], tokenizer_config_json={"pad_token": "[PAD]"})
    tokenizer = Tokenizer.from_dir(directory)
    assert tokenizer.pad_token_id is None
    assert tokenizer.vocab_size == backends["byte_level"].get_vocab_size()


def test_truncation_and_padding_in_the_file_are_not_applied(backends: Backends, write_model_dir: WriteModelDir) -> None:
    backend = tokenizers.Tokenizer.from_str(backends["byte_level"].to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    tokenizer = Tokenizer.from_dir(write_model_dir(tokenizer_json=backend))
    assert (
        tokenizer.decode(tokenizer.encode("a prompt that is longer than four")) == "a prompt that is longer than four"
    )


def write_vocab_and_merges(backend: tokenizers.Tokenizer, directory: Path) -> None:
    model = json.loads(backend.to_str())["model"]
    (directory / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
    (directory / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("gpt2", {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>"}),
        ("gpt2", {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "add_prefix_space": True}),
        ("opt", {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "add_bos_token": True}),
    ],
)
def test_gpt2_and_opt_directories_without_tokenizer_json_are_read(
    backends: Backends, write_model_dir: WriteModelDir, model_type: str, settings: dict[str, Any]
) -> None:
    directory = write_model_dir(
        tokenizer_config_json={**settings, "tokenizer_class": "GPT2Tokenizer"}, config_json={"model_type": model_type}
    )
    write_vocab_and_merges(backends["byte_level"], directory)
    ours = Tokenizer.from_dir(directory)
    assert_same(ours, GPT2Tokenizer.from_pretrained(directory))
    assert (ours.encode("ab")[0] == ours.bos_token_id) == (model_type == "opt")


def test_opt_begins_every_text_with_its_bos_token(backends: Backends, write_model_dir: WriteModelDir) -> None:
    directory = write_model_dir(config_json={"model_type": "opt", "bos_token_id": 1, "eos_token_id": 1})
    write_vocab_and_merges(backends["byte_level"], directory)
    tokenizer = Tokenizer.from_dir(directory)
    assert tokenizer.encode("ab")[0] == 1
    assert tokenizer.encode("ab", add_special_tokens=False)[0] != 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no tokenizer.json; download it"),
        ({"tokenizer_model": "spm"}, "has tokenizer.model but no tokenizer.json.*save_pretrained"),
        ({"tokenizer_json": '{"version": "1.0", "mod'}, "tokenizer.json is not a tokenizer.*download it again"),
        ({"tokenizer_json": "version https://git-lfs.github.com/spec/v1\n"}, "git lfs pull"),
        ({"vocab_json": "{", "merges_txt": ""}, "vocab.json or .*merges.txt is broken"),
        ({"vocab_json": "{}", "merges_txt": "", "config_json": {"model_type": "qwen2"}}, "only for GPT-2 and OPT"),
    ],
)
def test_missing_and_broken_files_are_named_with_a_remedy(
    write_model_dir: WriteModelDir, files: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_dir(write_model_dir(**files))


@pytest.mark.parametrize("content", ["{not json", "[1]"])
def test_broken_settings_are_named(backends: Backends, write_model_dir: WriteModelDir, content: str) -> None:
    directory = write_model_dir(tokenizer_json=backends["byte_level"], tokenizer_config_json=content)
    with pytest.raises(ValueError, match=r"tokenizer_config\.json"):
        Tokenizer.from_dir(directory)


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a directory"):
        Tokenizer.from_dir(tmp_path / "nowhere")


@pytest.mark.parametrize(("text", "message"), [("a\ud83d", "half of a surrogate pair"), (7, "must be a string")])
def test_what_is_no_text_is_refused(byte_level: Tokenizer, text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        byte_level.encode(text)


@pytest.mark.parametrize("token_id", [-1, 2**40])
def test_ids_that_no_vocabulary_can_have_are_refused(byte_level: Tokenizer, token_id: int) -> None:
    with pytest.raises(ValueError, match="token ids must be between"):
        byte_level.decode([token_id])


def test_vocab_size_counts_holes() -> None:
    assert Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 9}, unk_token="a"))).vocab_size == 10


# A token by itself


def test_a_token_is_shown_as_it_stands_in_a_text(tokenizers_by_name: dict[str, Tokenizer]) -> None:
    for name in ("byte_level", "sentencepiece"):
        tokenizer = tokenizers_by_name[name]
        the = tokenizer.encode("of the", add_special_tokens=False)[-1]
        assert tokenizer.token_text(the) == " the"
        assert tokenizer.token_bytes(the) == b" the"
        eos = tokenizer.eos_token_id
        assert eos is not None
        assert tokenizer.token_text(eos) == "</s>"
    euro = tokenizers_by_name["sentencepiece"].encode("€", add_special_tokens=False)[-1]
    assert tokenizers_by_name["sentencepiece"].token_bytes(euro) == "€".encode()[-1:]
    assert tokenizers_by_name["sentencepiece"].token_text(euro) == "\ufffd"


@given(data=st.binary(max_size=24))
def test_broken_bytes_become_marks_as_everywhere(data: bytes) -> None:
    text, rest = decode_complete(data, mark_each_byte=False)
    assert text + "\ufffd" * bool(rest) == data.decode(errors="replace")
    assert len(rest) <= 3
    assert data.endswith(rest)


def test_the_byte_alphabet_is_the_librarys() -> None:
    assert set(byte_level_alphabet()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())


# Presets


@given(text=st.text())
def test_any_text_passes_through_the_byte_level_tokenizer(tokenizers_by_name: dict[str, Tokenizer], text: str) -> None:
    preset = tokenizers_by_name["preset"]
    plain = text.replace("<|", "< |")
    assert preset.encode(plain) == list(preset.encode(plain, add_special_tokens=False))
    assert preset.decode(preset.encode(plain)) == plain
    assert len(preset.encode(plain)) == len(plain.encode())


@pytest.mark.parametrize("vocab_size", [259, 260, 1000])
def test_every_id_of_a_preset_decodes_to_something_of_its_own(vocab_size: int) -> None:
    preset = Tokenizer.byte_level(vocab_size)
    assert preset.vocab_size == vocab_size
    pieces = [preset.token_bytes(token_id) for token_id in range(vocab_size)]
    assert all(pieces)
    assert len(set(pieces)) == vocab_size
    preset.decode(range(vocab_size))


def test_a_vocabulary_too_small_for_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs 259 tokens, .* has 128"):
        Tokenizer.byte_level(128)


def test_presets_have_special_tokens_and_a_chat_template() -> None:
    preset = Tokenizer.byte_level(512)
    text = preset.apply_chat_template([{"role": "user", "content": "안녕"}])
    assert text == "<|im_start|>user\n안녕<|im_end|>\n<|im_start|>assistant\n"
    ids = preset.encode(text, add_special_tokens=False)
    assert [token_id for token_id in ids if token_id >= 256] == [257, 258, 257]
    assert preset.decode(ids) == "user\n안녕\nassistant\n"


# Bad words


def test_bad_words_are_found_at_the_start_and_behind_a_space(tokenizers_by_name: dict[str, Tokenizer]) -> None:
    for name in ("byte_level", "sentencepiece"):
        tokenizer = tokenizers_by_name[name]
        sequences = encode_bad_words(tokenizer, ["the", " Paris"])
        for text in ("the", "over the", "\nthe", "is Paris", "\nParis"):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert any(ids[-len(sequence) :] == sequence for sequence in sequences), (name, text, sequences)


@given(words=st.lists(st.text(alphabet="theof 한😀", min_size=1).filter(str.strip), max_size=3))
def test_no_bad_word_sequence_ends_in_another_form_of_the_same_word(byte_level: Tokenizer, words: list[str]) -> None:
    sequences = encode_bad_words(byte_level, words)
    assert all(sequences)
    assert len({tuple(sequence) for sequence in sequences}) == len(sequences)
    for word in words:
        bare = byte_level.encode(word.lstrip(), add_special_tokens=False)
        assert any(bare[-len(sequence) :] == sequence for sequence in sequences)


@pytest.mark.parametrize("word", ["", "  ", 7])
def test_bad_words_that_are_no_words_are_refused(byte_level: Tokenizer, word: Any) -> None:
    with pytest.raises(ValueError, match="bad_words must be non-empty strings"):
        encode_bad_words(byte_level, [word])


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_files_that_this_user_may_not_read_are_named(name: str, backends: Backends) -> None:
    with open_folder() as folder:
        backends["byte_level"].save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text("{}")
        (folder / name).chmod(0)
        with (
            unprivileged(),
            pytest.raises(ValueError, match=f"{name} cannot be read: Permission denied; let this user"),
        ):
            Tokenizer.from_dir(folder)


def test_the_post_processor_of_tokenizer_json_is_believed_over_the_settings(
    backends: Backends, write_model_dir: WriteModelDir
) -> None:
    backend = tokenizers.Tokenizer.from_str(backends["byte_level"].to_str())
    backend.post_processor = processors.TemplateProcessing(
        single="<s> <|im_start|> $A", special_tokens=[("<s>", 0), ("<|im_start|>", 2)]
    )
    tokenizer = Tokenizer.from_dir(
        write_model_dir(tokenizer_json=backend, tokenizer_config_json={**NAMES, "add_bos_token": False})
    )
    assert tokenizer.encode("a")[:2] == [0, 2]


def test_many_texts_are_encoded_as_each_alone() -> None:
    preset = Tokenizer.byte_level(300)
    texts = ["a" * 2**16, "b", "", "c" * 2**15, "d" * 2**16, "é"]
    assert preset.encode_batch(texts) == [preset.encode(text) for text in texts] == [list(t.encode()) for t in texts]
    assert preset.encode_batch([]) == []
    with pytest.raises(ValueError, match="not valid Unicode"):
        preset.encode_batch([*texts, "\ud800"])


# In a child process with undisturbed memory, thread after thread, so that the amount is constant.
KEEPING = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from quire.text import tokenizer

def resident_mib():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024

if sys.argv[1] == "keeps all":
    tokenizer.give_memory_back = lambda: None
preset = tokenizer.Tokenizer.byte_level(300)
text = "a quick brown fox " * 2**14
threads = [ThreadPoolExecutor(1) for _ in range(4)]
before = resident_mib()
for thread in threads:
    assert thread.submit(lambda: len(preset.encode(text))).result() == len(text)
print(resident_mib() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc's malloc is told to")
def test_threads_that_have_tokenized_large_texts_keep_little_of_it() -> None:
    source = str(Path(tokenizer.__file__).parents[2])
    kept, would_keep = (
        float(
            subprocess.run(
                [sys.executable, "-c", KEEPING, which], check=True, capture_output=True, text=True,
                env={**os.environ, "PYTHONPATH": source},
            ).stdout
        )
        for which in ("gives back", "keeps all")
    )  # fmt: skip
    assert kept < would_keep / 2, "25 of 92 MiB where this was written"
