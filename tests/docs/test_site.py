"""The site builds without a warning, has every figure and every claim, leads nowhere wrong and needs no network."""

import html.parser
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry

ROOT = Path(__file__).parents[2]
MISSING = [name for name in ("material", "mkdocstrings", "nbconvert") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the extra `site` is not installed: {', '.join(MISSING)}")
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
STYLED = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class _Read(html.parser.HTMLParser):
    """Collects the addresses of a page: what it loads, what it links to, and its own anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors += [each for name in ("id", "name") if (each := given.get(name))]
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.loaded.append(given.get("href") or "")
        if address := given.get(LOADED.get(tag, "")):
            self.loaded.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Read]:
    return {page: _Read(page) for page in site.rglob("*.html")}


def test_every_figure_has_an_entry_in_the_atlas_and_in_the_gallery(site: Path, pages: dict[Path, _Read]) -> None:
    gallery = pages[site / "atlas" / "index.html"].links
    for experiment in registry.experiments():
        system, short = experiment.name.split("/")
        assert short in pages[site / "atlas" / f"{system}.html"].anchors, experiment.name
        assert f"{system}.html#{short}" in gallery, experiment.name


def test_every_claim_is_on_the_page_of_all_claims_and_leads_to_its_figure(site: Path, pages: dict[Path, _Read]) -> None:
    links = pages[site / "claims.html"].links
    for experiment in registry.experiments():
        system, short = experiment.name.split("/")
        for claim in experiment.claims:
            assert f"atlas/{system}.html#{short}--{claim.id}" in links


def test_every_claim_of_a_paper_that_fails_is_among_the_differences(site: Path, pages: dict[Path, _Read]) -> None:
    links = pages[site / "differences.html"].links
    for experiment in registry.experiments():
        for claim in experiment.claims:
            found = claim.recorded().laptop
            if found and found.seeds and found.status == "fails" and claim.origin != "ours":
                assert f"atlas/{experiment.name.replace('/', '.html#')}--{claim.id}" in links


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, _Read]) -> None:
    loaded = {address for page in pages.values() for address in page.loaded}
    for style in site.rglob("*.css"):
        loaded |= {found[0] or found[1] for found in STYLED.findall(style.read_text(encoding="utf-8"))}
    assert len(loaded) > 10
    assert [address for address in loaded if re.match(r"(\w+:)?//", address) and not address.startswith("data:")] == []


def test_every_link_within_the_site_resolves(site: Path, pages: dict[Path, _Read]) -> None:
    @cache
    def anchors(page: Path) -> frozenset[str]:
        return frozenset(pages[page].anchors) if page in pages else frozenset()

    wrong, followed = [], 0
    for page, read in pages.items():
        if page.name == "404.html":  # its links are from the root of a server
            continue
        for address in [*read.links, *read.loaded]:
            target = urlsplit(urljoin(page.as_uri(), address))
            if target.scheme != "file":
                continue
            followed += 1
            file, fragment = Path(unquote(target.path)), unquote(target.fragment)
            if not file.exists() or (fragment and fragment not in anchors(file)):
                wrong.append(f"{page.relative_to(site)}: {address}")
    assert followed > 1000
    assert wrong == [], wrong[:5]
