from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from podium.core.errors import InvalidArgumentError, NotFoundError
from podium.local.models import digest, known, models_dir, resolve
from podium.local.models.prepare import prepare
from support.model_files import NO_TENSORS
from tokenizers import Tokenizer

SMOLLM2 = "smollm2-135m-instruct"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PODIUM_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


def a_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(NO_TENSORS)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_models_dir_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_MODELS_DIR", "~/m")
    assert models_dir() == Path.home() / "m"
    monkeypatch.delenv("PODIUM_MODELS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert models_dir() == Path("/c/podium/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert models_dir() == Path.home() / ".cache/podium/models"


def test_a_name_resolves_into_the_cache(cache: Path) -> None:
    folder = a_model(cache / "mine")
    hub = a_model(cache / "org" / "other.v2")
    assert resolve("mine") == folder
    assert resolve("org/other.v2") == hub
    assert known() == ["mine", "org/other.v2"]


def test_a_folder_is_taken_as_it_is(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_model(tmp_path / "own" / "model")
    assert resolve(str(folder)) == folder
    monkeypatch.chdir(tmp_path)
    assert resolve("own/model") == folder


def test_an_unknown_name_lists_the_known_ones(cache: Path) -> None:
    a_model(cache / "mine")
    with pytest.raises(NotFoundError) as caught:
        resolve("nobody")
    assert caught.value.reason == "MODEL_NOT_FOUND"
    assert caught.value.metadata == {"model": "nobody", "known": f"mine,{SMOLLM2}"}
    assert SMOLLM2 in caught.value.message


@pytest.mark.parametrize("name", ["", "..", "../../etc", "a/../b", "a/b/c", "/nowhere", "a b", "."])
def test_a_bad_name_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError) as caught:
        resolve(name)
    assert caught.value.violations[0].field == "base_model"


def test_prepare_refuses_what_it_cannot_make(cache: Path) -> None:
    with pytest.raises(NotFoundError, match=SMOLLM2):
        prepare("smollm3")
    assert list(cache.glob("*")) == []


def test_digest_sees_content_and_not_place(tmp_path: Path) -> None:
    one, two = a_model(tmp_path / "one"), a_model(tmp_path / "two")
    assert digest(one) == digest(two)
    assert digest(one).startswith("sha256:")
    (two / "README.md").write_text("not part of what computes")
    assert digest(one) == digest(two)
    (two / "tokenizer.json").write_text('{"a": 1}')
    assert digest(one) != digest(two)


@pytest.mark.parametrize(
    "name", ["tokenizer.model", "tekken.json", "qwen.tiktoken", "additional_chat_templates/a.jinja"]
)
def test_every_file_that_says_how_text_is_read_counts(tmp_path: Path, name: str) -> None:
    folder = a_model(tmp_path / "one")
    before = digest(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("a")
    assert digest(folder) != before


@pytest.mark.parametrize("sharded", [False, True])
def test_digest_of_a_model_is_what_it_ever_was(tmp_path: Path, sharded: bool) -> None:
    """Versions hold it: a job on another one cannot go on from them."""
    folder = a_model(tmp_path / "one")
    if sharded:
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        index = json.dumps({"weight_map": {"a": "model-1.safetensors"}})
        (folder / "model.safetensors.index.json").write_text(index)
    (folder / "tokenizer_config.json").write_text('{"a": "b"}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    lines = [
        f"{file.name} {file.stat().st_size} {hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        for file in sorted(folder.iterdir())
    ]
    assert digest(folder) == "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def test_copies_of_the_weights_are_not_in_the_digest(tmp_path: Path) -> None:
    """Who fetched the model otherwise than by Podium has Mistral's own beside the shards."""
    folder = a_model(tmp_path / "one")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = json.dumps({"weight_map": {"a": "model-1.safetensors"}})
    (folder / "model.safetensors.index.json").write_text(index)
    before = digest(folder)
    (folder / "consolidated.safetensors").write_bytes(b"a")
    (folder / "consolidated.safetensors.index.json").write_text("{}")
    assert digest(folder) == before
    (folder / "model-1.safetensors").write_bytes(b"a")
    assert digest(folder) != before


def test_digest_of_an_index_that_names_nothing(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "one")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(NotFoundError, match=r"index\.json cannot be read"):
        digest(folder)


def test_a_file_of_a_subfolder_is_another_than_its_namesake(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "one")
    (folder / "additional_chat_templates" / "deeper").mkdir(parents=True)
    (folder / "tokenizer").mkdir()
    inner = folder / "additional_chat_templates" / "chat_template.jinja"
    outer = folder / "chat_template.jinja"
    inner.write_text("a")
    outer.write_text("b")
    before = digest(folder)
    stamps = json.loads((folder / ".podium-digest.json").read_text())["files"]
    assert {"chat_template.jinja", "additional_chat_templates/chat_template.jinja"} <= set(stamps)
    for file in (inner, outer):
        held = file.read_text()
        file.write_text("longer")
        assert digest(folder) != before
        file.write_text(held)
    os.replace(inner, folder / "additional_chat_templates" / "other.jinja")
    assert digest(folder) != before


def test_digest_is_remembered_until_a_file_changes(tmp_path: Path) -> None:
    folder = a_model(tmp_path / "one")
    first = digest(folder)
    cache = folder / ".podium-digest.json"
    remembered = json.loads(cache.read_text())
    cache.write_text(json.dumps({**remembered, "digest": "sha256:from-the-cache"}))
    assert digest(folder) == "sha256:from-the-cache"
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert digest(folder) == first
    cache.write_text("not json")
    assert digest(folder) == first


def test_digest_of_no_model(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no config"):
        digest(tmp_path)


def test_prepared_tokenizer_is_smollm2s() -> None:
    tokenizer = Tokenizer.from_file(str(resolve(SMOLLM2) / "tokenizer.json"))
    assert [tokenizer.id_to_token(i) for i in range(3)] == [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
    ]
    # Digits stand alone, and the blanks before them stay together: smollm's own splitter.
    assert tokenizer.encode("In  2024").tokens == ["In", "ĠĠ", "2", "0", "2", "4"]
    assert tokenizer.encode("a\n\n12 b").tokens == ["a", "ĊĊ", "1", "2", "Ġb"]
    assert tokenizer.encode("hi<|im_end|>\n").ids[1:] == [2, 198]


def test_prepared_model_ends_its_turn_with_im_end() -> None:
    folder = resolve(SMOLLM2)
    config = json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    names = json.loads((folder / "tokenizer_config.json").read_text())
    assert "quantization_config" not in config
    assert config["dtype"] == "bfloat16"
    assert (config["eos_token_id"], generation["eos_token_id"]) == (2, 2)
    assert (names["eos_token"], names["pad_token"]) == ("<|im_end|>", "<|im_end|>")
    assert "<|im_start|>" in (folder / "chat_template.jinja").read_text()


def test_a_prepared_model_is_the_same_with_a_hub_and_without() -> None:
    config = json.loads((resolve(SMOLLM2) / "tokenizer_config.json").read_text())
    assert not {"is_local", "local_files_only"} & set(config)
