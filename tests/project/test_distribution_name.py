"""The distribution is `feature-learning-lab`: `featurelab` on PyPI is another project, to which nobody is sent."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from featurelab import namesake
from featurelab.pipelines.engine.command.verbs import authors, doctor

ROOT = Path(__file__).parents[2]
FEATURELAB = Path(sys.executable).parent / "featurelab"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLER = r"\b(?:pip|uv|pipx|uvx|poetry|conda)\b[^\n`&|;]*\b(?:install|add|wheel|download)\b"
SENDS_AWAY = [
    re.compile(INSTALLER + r"[^\n`&|;]*[ '\"]featurelab(?![\w/.])"),
    re.compile(r"(?<![\w-])featurelab\[(?:\w+)(?:,\w+)*\](?! =)"),
    re.compile(r"featurelab *(?:==|>=|~=)"),
    re.compile(r"dependencies = \[[^\]]*['\"]featurelab\b"),
    re.compile(r"version\(['\"]featurelab['\"]\)"),
]
THEIRS = "Metadata-Version: 2.4\nName: featurelab\nVersion: 0.1.3\nSummary: Comprehensive feature engineering package\n"


def test_nothing_tells_a_user_to_install_the_other_package() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name and name != str(Path(__file__).relative_to(ROOT))]
    found = []
    for file in files:
        if file.is_file() and not file.is_symlink() and b"\0" not in (content := file.read_bytes())[:1000]:
            text = content.decode(errors="replace")
            found += [f"{file.relative_to(ROOT)}: {hit[0]}" for form in SENDS_AWAY for hit in form.finditer(text)]
    assert len(files) > 500
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install featurelab",
        "pip install 'featurelab[lm]'",
        "python -m pip install --upgrade featurelab",
        "uv add featurelab",
        'dependencies = ["featurelab"]',
        "version('featurelab')",
        "featurelab>=0.1",
    ],
)
def test_what_would_is_recognised(text: str) -> None:
    assert any(form.search(text) for form in SENDS_AWAY)
    assert not any(form.search(text.replace("featurelab", "feature-learning-lab")) for form in SENDS_AWAY)


def test_project_template_and_command_have_the_name() -> None:
    assert PROJECT["name"] == "feature-learning-lab"
    assert list(PROJECT["scripts"]) == ["featurelab"]
    template = tomllib.loads(authors.PROJECT.format(system="mine"))
    assert template["project"]["dependencies"] == ["feature-learning-lab[lab]"]
    assert version("feature-learning-lab") == PROJECT["version"]
    said = subprocess.run([FEATURELAB, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"featurelab {PROJECT['version']}\n"


def facts(folder: Path, text: str) -> Path:
    """A folder of packages in which something called featurelab is installed."""
    (folder / "featurelab-0.1.3.dist-info").mkdir(parents=True)
    (folder / "featurelab-0.1.3.dist-info" / "METADATA").write_text(text)
    return folder


def imported(*folders: Path) -> str:
    """What the first import says on stderr where these folders are on the path."""
    path = [str(ROOT), *map(str, folders)]
    code = f"import sys; sys.path[:0] = {path!r}; import featurelab, featurelab.pipelines"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr


def test_the_first_import_and_doctor_name_another_project_s_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = facts(tmp_path, THEIRS)
    (said,) = imported(site).splitlines()
    assert f"another project's package featurelab 0.1.3 in {site}" in said
    assert "`pip uninstall featurelab`, then install feature-learning-lab again" in said
    monkeypatch.syspath_prepend(str(site))
    named = doctor._name()
    assert (named["name"], named["ok"]) == ("name", False)
    assert named["detail"] in said


def test_a_checkout_of_our_former_name_is_none_of_another_project(tmp_path: Path) -> None:
    summary = f"Summary: {PROJECT['description']}\n"
    assert imported(facts(tmp_path, f"Metadata-Version: 2.4\nName: featurelab\nVersion: 0.1.3\n{summary}")) == ""
    assert PROJECT["description"].encode().startswith(namesake.OURS)


def test_without_another_project_nothing_is_said(tmp_path: Path) -> None:
    assert imported(tmp_path, tmp_path / "missing") == ""
    assert doctor._name()["ok"]
