"""What tests of systems share; it also puts this folder on the path, for `madeup` and its neighbours."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def few_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few rows of the datasets whose pictures several systems read, written once for all of them."""
    pytest.importorskip("datasets")
    from publicfiles import write_public

    root = tmp_path_factory.mktemp("public")
    for name in ("celeba", "cifar10", "cifar100", "mnist", "svhn"):
        write_public(root, name)
    return root
