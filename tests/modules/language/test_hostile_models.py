"""Folders of models that somebody else has written: one line says what is wrong, and nothing in them is run."""

import json
import os
import shutil

import pytest
import torch
from hostilefolders import CANARY, FOLDERS, IGNORED, LOADED, config, growing, spoiled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from featurelab.modules.language import NEWLINES, ModelMissing, ModelRefused, find_model, load_model
from featurelab.modules.language.hub_tokenizers import check_tokenizer

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No network, an empty cache, and a limit of time for what waits for ever, as a pipe does."""
    import signal

    def refuse(*arguments, **options):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("FEATURELAB_DATA", raising=False)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it takes too long"))
    signal.alarm(300)
    yield
    signal.alarm(0)


def one_line(error):
    said = str(error)
    assert said
    assert "\n" not in said
    assert len(said) < 500
    return said


@pytest.mark.parametrize("wrong", FOLDERS)
def test_a_spoiled_folder_is_refused_in_one_line_and_nothing_in_it_is_run(wrong, llama, tmp_path):
    spoil, said = FOLDERS[wrong]
    folder = spoiled(llama, tmp_path, spoil)
    for look in (find_model, load_model):
        with pytest.raises(ModelMissing, match=said) as caught:
            look(str(folder))
        assert "model" in one_line(caught.value)
    assert not (tmp_path / CANARY).exists()


@pytest.mark.parametrize("wrong", LOADED)
def test_what_only_loading_shows_is_refused_in_one_line(wrong, llama, tmp_path):
    spoil, said = LOADED[wrong]
    folder = spoiled(llama, tmp_path, spoil)
    with pytest.raises(ValueError, match=said) as caught:
        load_model(str(folder))
    one_line(caught.value)
    assert not (tmp_path / CANARY).exists()


@pytest.mark.parametrize("beside", IGNORED)
def test_code_and_pickles_beside_a_good_model_are_not_run(beside, llama, tmp_path):
    folder = spoiled(llama, tmp_path, IGNORED[beside])
    expected = load_model(str(llama)).net.state_dict()
    for name, value in load_model(str(folder)).net.state_dict().items():
        assert torch.equal(value, expected[name])
    assert not (tmp_path / CANARY).exists()


def test_links_into_the_hub_s_cache_are_followed(llama, tmp_path):
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    shutil.copytree(llama, blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert find_model(str(snapshot)) == snapshot
    elsewhere = tmp_path / "linked"
    elsewhere.symlink_to(llama)
    assert find_model(str(elsewhere)) == elsewhere


def test_a_change_after_the_first_look_is_seen(llama, tmp_path):
    folder = spoiled(llama, tmp_path, lambda folder: None)
    find_model(str(folder))
    config(folder, num_hidden_layers=10**9)
    with pytest.raises(ModelRefused, match="num_hidden_layers is 1000000000"):
        find_model(str(folder))


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "../" * 900, "/dev/zero", "/dev/stdin", "https://127.0.0.1:9/x"])
def test_names_that_are_no_folders_are_not_on_this_machine(name):
    with pytest.raises(ModelMissing, match="is not on this machine") as caught:
        find_model(name)
    assert "\n" not in str(caught.value)


TEMPLATES = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "fills memory": "{{ 'x' * 10**10 }}",
    "doubles": "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "is long": "{{ 'x' * 10**6 }}",
    "runs commands": "{{ cycler.__init__.__globals__.os.system('touch ' ~ messages[0].content) }}",
    "no template": "{% if",
}


@pytest.mark.parametrize("wrong", [pytest.param("loops", marks=pytest.mark.heavy), *list(TEMPLATES)[1:]])
def test_a_hostile_chat_template_is_refused_in_one_line(wrong, chat_llama, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(chat_llama)
    tokenizer.chat_template = TEMPLATES[wrong]
    with pytest.raises(ModelRefused, match="the chat template") as caught:
        check_tokenizer(tokenizer, tmp_path, chat=True)
    one_line(caught.value)
    check_tokenizer(tokenizer, tmp_path)


def test_a_template_that_refuses_a_conversation_is_one(chat_llama, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(chat_llama)
    tokenizer.chat_template = "{{ raise_exception('no system prompt') }}"
    check_tokenizer(tokenizer, tmp_path, chat=True)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(["llama", "../..", "eager", "a/b", 10**9, -1, 0, 1, 2, 16, 64]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def changing(llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("changing") / "model"
    shutil.copytree(llama, folder)
    return folder, json.loads((folder / "config.json").read_text())


def looked_at(changing, values):
    folder, good = changing
    (folder / "config.json").write_text(json.dumps(good | values))
    os.utime(folder / "config.json", ns=(looked_at.time, looked_at.time))
    looked_at.time += 1
    said = ""
    try:
        model = load_model(str(folder))
        model.prompt(NEWLINES, [("a", "b")], "c")
    except (ModelMissing, ValueError) as error:
        said = str(error)
    assert "\n" not in said
    assert not (folder.parent / CANARY).exists()


looked_at.time = 1
NAMES = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
    "head_dim",
    "rms_norm_eps",
    "hidden_act",
    "rope_parameters",
    "tie_word_embeddings",
    "model_type",
    "architectures",
    "dtype",
    "num_labels",
    "id2label",
    "pad_token_id",
    "attention_bias",
    "layer_types",
    "auto_map",
    "initializer_range",
    "is_encoder_decoder",
]
CHANGES = st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=12)), VALUES, min_size=1, max_size=3)
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


@settings(max_examples=25, derandomize=True, suppress_health_check=SLOW, database=None)
@given(CHANGES)
def test_any_configuration_is_loaded_or_refused_in_one_line(changing, values):
    looked_at(changing, values)


@pytest.mark.heavy
@settings(max_examples=1000, suppress_health_check=SLOW, database=None)
@given(CHANGES)
def test_a_thousand_configurations_are_loaded_or_refused_in_one_line(changing, values):
    import signal

    signal.alarm(0)
    looked_at(changing, values)


def test_the_growth_of_a_good_tokenizer_is_none(llama, tmp_path):
    check_tokenizer(transformers.AutoTokenizer.from_pretrained(llama), tmp_path)
    folder = spoiled(llama, tmp_path, growing)
    with pytest.raises(ModelRefused, match="makes texts more than"):
        check_tokenizer(transformers.AutoTokenizer.from_pretrained(folder), folder)
