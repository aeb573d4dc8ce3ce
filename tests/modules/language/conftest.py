"""Tiny Llamas on disk; it also puts `tinyllama`, which writes them, on the path of the tests here."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "pipelines"))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    from tinyllama import save_llama

    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_llama(folder)
    return folder


@pytest.fixture(scope="session")
def chat_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    from tinyllama import save_llama

    folder = tmp_path_factory.mktemp("models") / "tiny-chat"
    save_llama(folder, chat=True)
    return folder
