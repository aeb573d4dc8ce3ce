"""What mkdocs does beyond rendering docs/*.md: pages made from experiments, verdicts, docstrings and notebooks."""

import re
from pathlib import Path
from typing import Any

from generator import api, atlas, links, notebooks
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from featurelab.pipelines.engine.experiment.catalogue import registry

ROOT = Path(__file__).parent
ASSETS = ROOT / "generator" / "assets"
# GitHub lets a table follow a line of text, and Markdown in Python does not
TABLE = re.compile(r"^((?!\|).+)\n(?=\|.*\|\n\|[ :|-]+\|\n)", re.MULTILINE)
GENERATED = re.compile(r"<!-- (atlas|gallery|claims|differences) ?([\w/]*) -->")
# tables that GitHub shows, and that the site shows as plots instead
REPLACED = {
    "measured": "Every claim with its interval is in the [atlas](atlas/{page}.md).",
    "verdicts": "The site has them as [all claims](claims.md), with search and filters.",
}


def on_config(config: MkDocsConfig) -> None:
    """Fill the lists of the navigation that follow from the experiments, the packages and the notebooks."""
    systems = registry.systems()
    lists: dict[str, list[Any]] = {
        "Atlas": ["atlas/index.md", *(f"atlas/{system}.md" for system in systems)],
        "Notebooks": [f"notebooks/{name}.md" for name in notebooks.names()],
        "Papers": [f"{system}.md" for system in systems if (ROOT / f"{system}.md").is_file()],
        "API": ["api/index.md", *({family: f"api/{family}.md"} for family in api.FAMILIES)],
    }
    assert config.nav is not None
    for section in config.nav:
        for title, pages in section.items():
            pages.extend(lists.get(title, []))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and what they show."""
    added: dict[str, str | bytes] = {**atlas.pages(), **api.pages(), **notebooks.pages(), **atlas.downloads()}
    added |= {page: links.of_root(name) for name, page in links.PAGES.items()}
    added |= {f"assets/{file.name}": file.read_bytes() for file in ASSETS.iterdir()}
    added |= {f"assets/{name}": atlas.shared(name) for name in ("look.css", "claims.js")}
    added |= links.sources(atlas.sources())
    for path, content in added.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of docs/ to copies in the site, and take out tables that the site shows as plots."""
    path = page.file.src_uri
    if page.file.generated_by:
        return markdown
    for name, instead in REPLACED.items():
        markdown = re.sub(
            rf"(<!-- {name}: begin -->\n(?:(?!\|).*\n)*)(?:\|.*\n)+(?=<!-- {name}: end -->)",
            rf"\1\n{instead.format(page=Path(path).stem)}\n\n",
            markdown,
        )
    markdown = re.sub(
        r"<!-- differences_(\w+): begin -->\n(?:\|.*\n)+<!-- \w+: end -->", r"<!-- differences \1 -->", markdown
    )
    markdown = re.sub(r"<!-- (\w+): (begin|end) -->\n", "\n", markdown)
    return links.rewritten(TABLE.sub(r"\1\n\n", markdown), f"docs/{path}")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put plots and tables of claims where a page asks for them; Markdown need not read them."""
    return GENERATED.sub(lambda found: atlas.html(found[1], found[2], page.url), html)
