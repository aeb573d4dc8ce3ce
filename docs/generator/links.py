"""Links that leave docs/ on GitHub stay in the site: pages of the root become pages, and other files are copied."""

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "about.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")


def rewritten(markdown: str, place: str) -> str:
    """Return a page of the repository, at `place` from its root, with links as the site needs them."""
    page = target(place)

    def leading(found: re.Match[str]) -> str:
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(place), found[2]))
        return f"{found[1]}{address(wanted, page)}{found[3] or ''}{found[4]}"

    return LINK.sub(leading, markdown)


def address(wanted: str, page: str) -> str:
    """Return the link from a page of the site to a file of the repository, which is given from the root."""
    return posixpath.relpath(target(wanted), posixpath.dirname(page) or ".")


def target(path: str) -> str:
    """Return where the site has a file of the repository: as a page, or as a copy."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".ipynb"):
        return f"notebooks/{posixpath.basename(path)[:-6]}.md"
    return PAGES.get(path) or copied(path)


def copied(path: str) -> str:
    """Return where the site has its copy of a file. Browsers show a text, and download a file that ends in .py."""
    return f"source/{path}.txt"


def sources(also: Iterable[str] = ()) -> dict[str, bytes]:
    """Return the copies of the files of the repository that pages link to, and of others, by place."""
    linked = {"LICENSE", *also}
    for page in [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / name for name in PAGES)]:
        place = page.relative_to(ROOT).as_posix()
        for _, link, _, _ in LINK.findall(page.read_text(encoding="utf-8")):
            wanted = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
            if target(wanted) == copied(wanted):
                linked.add(wanted)
    return {copied(path): (ROOT / path).read_bytes() for path in sorted(linked) if (ROOT / path).is_file()}


def of_root(name: str) -> str:
    """Return a page of the root as the site shows it."""
    markdown = re.sub(r"<!-- (\w+): (begin|end) -->\n", "\n", (ROOT / name).read_text(encoding="utf-8"))
    return rewritten(markdown, name)
