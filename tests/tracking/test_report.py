from __future__ import annotations

import base64
import csv
import functools
import hashlib
import html.parser
import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.tracking.report.claims import parts
from featurelab.tracking.report.page import duration, render

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

OWN = re.compile(r"files/[\w-]+\.(csv|json|pdf)")  # what can be downloaded from beside the page
INSIDE = re.compile(rf"#|data:image/png;base64,|{OWN.pattern}$")


def _claim(**fields):
    claim = {"id": "c", "statement": "it is so", "origin": "paper", "status": "holds", "documented": "holds"}
    rest = dict.fromkeys(["reason", "measured", "ci", "expected", "paper", "where", "seeds", "specific"])
    return {**claim, **rest, **fields}


def _entry(**fields):
    entry = {"name": "system/figure", "system": "system", "figure": "Fig. 2", "title": "A title", "scale": "laptop"}
    entry |= {"sweep_run_id": "s" * 32, "trial_run_ids": ["a" * 32, "b" * 32], "seconds": 75.0, "trials": 2}
    entry |= {
        "config": {"lr": 0.1},
        "command": "featurelab reproduce system/figure",
        "png": PNG,
        "caption": "A caption",
    }
    return {**entry, "claims": [_claim()], **fields}


def _page(tmp_path, *entries):
    path = render(entries, tmp_path / "report")
    assert path == tmp_path / "report" / "index.html"
    return path.read_text()


class _Outline(html.parser.HTMLParser):
    """Collects tags, links, ids and texts, and checks that every opened tag is closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.links, self.ids, self.text = [], [], [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        self.links += [values[key] for key in ("src", "href") if key in values]
        self.ids += [values["id"]] if "id" in values else []
        if tag not in ("meta", "img", "br", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_shows_everything_and_is_self_contained(tmp_path):
    claims = [
        _claim(
            id="first", measured=0.123456, ci=[0.1, 0.2], expected="at most 0.3", paper=0.1, where="Table 4", seeds=3
        ),
        _claim(id="second", status="fails", reason="saturated", measured={"width 64": 1, "width 128": 2.5}),
        _claim(id="third", status="untested", documented="untested", origin="ours"),
        _claim(id="fourth", status="fails", documented="fails", origin="corrected"),
    ]
    outline = _Outline(_page(tmp_path, _entry(claims=claims), _entry(name="system/other", png=None, claims=[])))
    assert outline.open == []
    assert outline.tags.count("script") == 1
    assert "link" not in outline.tags
    assert [link for link in outline.links if not INSIDE.match(link)] == []
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)
    assert len(outline.ids) == len(set(outline.ids))
    assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in outline.links
    text = re.sub(r"\s+", " ", outline.text)
    for text_part in ("Fig. 2. A title", "A caption", "0.1235", "0.1 to 0.2", "at most 0.3", "Table 4", "3 seeds"):
        assert text_part in text
    for text_part in (
        "saturated",
        "width 128 2.5",
        "a" * 32,
        "featurelab reproduce system/figure",
        "1 min 15 s",
        "no claims",
    ):
        assert text_part in text
    assert "no claims" in text
    assert "1 replicated 2 failing 0 undecided 1 untested 0 of 0 identities hold 1 other than documented" in text
    assert text.count("documented: holds") == 2  # once in the table of all verdicts, once beside its figure
    assert text.count("as documented") == 2


def test_every_text_of_an_entry_is_shown_and_never_executed(tmp_path):
    evil = '<script>alert("x")</script><img src=x onerror=alert(1)>'
    claim = _claim(**dict.fromkeys(["id", "statement", "origin", "reason", "measured", "expected", "where"], evil))
    claim |= {"ci": [evil], "paper": {evil: evil}, "documented": evil, "seeds": evil, "status": evil, "kind": evil}
    claim |= {"specific": evil, "unspecific": evil, "controls": {evil: {"status": evil, "measured": evil}}}
    claim |= {"history": [{"status": evil, "date": evil, "sweep_run_id": evil}], "named_controls": [evil]}
    fields = ["name", "system", "figure", "title", "scale", "sweep_run_id", "command", "caption", "source"]
    entry = _entry(**dict.fromkeys(fields, evil), claims=[claim], config={evil: evil}, trial_run_ids=[evil])
    addresses = dict.fromkeys(["url", "charts_url", "source_url"], "javascript:alert(1)")
    outline = _Outline(_page(tmp_path, {**entry, **addresses}))
    assert outline.tags.count("script") == 1
    assert [link for link in outline.links if not INSIDE.match(link)] == []
    assert outline.text.count(evil) > 15


class _Skeleton(html.parser.HTMLParser):
    """Collects elements and the names of their attributes in order: the structure of a page without its texts."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.values, self.meta = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, tuple(name for name, _ in attributes)))
        self.values += [(tag, name, value) for name, value in attributes if name in ("href", "src", "class", "id")]
        self.meta += [dict(attributes)] if tag == "meta" else []

    def handle_endtag(self, tag):
        self.elements.append((tag, None))

    def handle_comment(self, data):
        self.elements.append(("comment", data))

    def handle_decl(self, decl):
        self.elements.append(("declaration", decl))


TEXTS = [
    *("id", "statement", "origin", "reason", "measured", "expected", "where", "paper", "documented", "status", "kind"),
    "unspecific",
]
ADDRESSES = ["url", "charts_url", "source_url"]
PLACES = ["name", "system", "figure", "title", "scale", "sweep_run_id", "command", "caption", "source", *ADDRESSES]
EVIL = st.one_of(
    st.text(min_size=1, max_size=30),
    st.lists(
        st.sampled_from(
            [
                *(
                    "<script>",
                    "</script>",
                    "<img src=x onerror=alert(1)>",
                    '"',
                    "'",
                    "`",
                    ">",
                    "<",
                    "&lt;",
                    "&#60;",
                    "--&gt;",
                ),
                *(
                    '"onload="alert(1)',
                    "javascript:alert(1)",
                    "data:text/html,",
                    "</style>",
                    "</title>",
                    "<!--",
                    "]]>",
                    "{{7*7}}",
                ),
                *(
                    "{% raw %}",
                    "\u202e",
                    "\x1b[2J",
                    "\x00",
                    "<svg/onload=x>",
                    "\ud800",
                    "http://a' onclick='x",
                    "<base href=//x>",
                ),
            ]
        ),
        min_size=1,
        max_size=4,
    ).map("".join),
)


def _filled(text, scale="laptop", url=None):
    claim = _claim(**dict.fromkeys(TEXTS, text)) | {"ci": [text], "paper": {text: text}, "seeds": 3}
    claim |= {"specific": False, "controls": {text: {"status": text, "measured": {text: text}}}}
    claim |= {"history": [{"status": text, "date": text, "sweep_run_id": text}]}
    places = dict.fromkeys(PLACES, text) | dict.fromkeys(ADDRESSES, url or text)
    return _entry(**places, claims=[claim], config={text: text}, trial_run_ids=[text])


@functools.cache
def _plain_page():
    with tempfile.TemporaryDirectory() as folder:
        return _Skeleton(_page(Path(folder), _filled("plain")))


@settings(max_examples=200)
@given(EVIL)
def test_no_text_adds_an_element_or_an_attribute_to_the_page(tmp_path, text):
    text = f"x{text}"  # an empty text is left out
    page = _Skeleton(_page(tmp_path, _filled(text)))
    assert page.elements == _plain_page().elements
    for tag, name, value in page.values:
        if name in ("href", "src"):
            assert INSIDE.match(value), (tag, name, value)
        if name == "class":
            assert re.fullmatch(r"[a-z]+( [a-z]+)*", value)
        if name == "id":
            assert re.fullmatch(r"[\w-]+", value)


def test_an_address_is_linked_and_cannot_leave_its_attribute(tmp_path):
    evil = 'http://x/" onclick="alert(1)" \'><script>'
    page = _Skeleton(_page(tmp_path, _filled("plain", url=evil)))
    assert page.elements == _Skeleton(_page(tmp_path, _filled("plain", url="http://x/"))).elements
    assert ("a", "href", evil) in page.values


def test_the_page_allows_its_own_style_script_and_pictures_and_nothing_else(tmp_path):
    page = _page(tmp_path, _entry())
    (policy,) = [m["content"] for m in _Skeleton(page).meta if m.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    style = page.partition("<style>")[2].partition("</style>")[0]
    script = page.partition("<script>")[2].partition("</script>")[0]
    assert "addEventListener" in script
    own, runs = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    none = dict.fromkeys(["default-src", "base-uri", "form-action"], "'none'")
    assert rules == none | {"img-src": "data:", "style-src": f"'sha256-{own}'", "script-src": f"'sha256-{runs}'"}
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert " style=" not in page
    assert not re.search(r"<[^>]* on\w+=", page.replace(script, ""))
    assert not re.search("innerHTML|outerHTML|insertAdjacent|document.write|eval", script)


def test_every_download_lies_beside_the_page_and_holds_the_verdicts(tmp_path):
    claims = [_claim(id="first", measured={"a": 0.5}), _claim(id="=1+1", statement="a, b")]
    entries = [_entry(claims=claims, pdf=b"%PDF-1.4"), _entry(scale="paper"), {"name": "a/damaged", "left_out": "why"}]
    links = {link for link in _Outline(_page(tmp_path, *entries)).links if OWN.fullmatch(link)}
    folder = tmp_path / "report"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.parent.name == "files"} == links
    names = ["--claims.csv", "--claims.json", *(f"system-figure{s}" for s in (".csv", ".json", ".pdf"))]
    assert {*names, "system-figure-paper.csv", "system-figure-paper.json"} == {link.split("/")[1] for link in links}
    stored = json.loads((folder / "files" / "system-figure.json").read_text())
    assert [(row["id"], row["scale"], row["measured"]) for row in stored] == [
        ("first", "laptop", {"a": 0.5}),
        ("=1+1", "laptop", None),
    ]
    rows = list(csv.DictReader((folder / "files" / "--claims.csv").open()))
    assert [(row["id"], row["scale"]) for row in rows] == [("first", "laptop"), ("=1+1", "laptop"), ("c", "paper")]
    assert json.loads(rows[0]["measured"]) == {"a": 0.5}


def test_missing_values_are_shown_as_missing(tmp_path):
    text = _Outline(_page(tmp_path, {"name": "system/bare", "claims": [{"status": "untested"}]})).text
    assert "system/bare" in text
    assert "not measured" in text
    assert "None" not in text
    assert "Nothing has been reproduced yet" in _page(tmp_path)
    with pytest.raises(KeyError):
        _page(tmp_path, {"title": "nameless"})


def test_runs_are_linked_if_an_address_is_given(tmp_path):
    server, paper = "http://127.0.0.1:5000", "https://arxiv.org/abs/2402.05271"
    addresses = {"url": f"{server}/#/run", "charts_url": f"{server}/#/charts", "source_url": paper}
    claims = [_claim(id="a", where="Table 4"), _claim(id="b", where="Table 5")]
    links = _Outline(_page(tmp_path, _entry(**addresses, source="An author 2024", claims=claims))).links
    assert set(addresses.values()) <= set(links)
    assert links.count(paper) == 3  # that of the figure and that of each claim


def test_every_claim_has_its_own_address_and_the_table_links_to_it(tmp_path):
    claims = [_claim(id=id) for id in ("first", "second", "second", "a b", None)]
    other = _entry(name="system/other", claims=[_claim(id="first")])
    paper = _entry(scale="paper", claims=[_claim(id="first")])
    outline = _Outline(_page(tmp_path, _entry(claims=claims), other, paper))
    assert len(outline.ids) == len(set(outline.ids))
    anchors = [f"system-figure--{id}" for id in ("first", "second", "second-2", "a-b", "claim")]
    for anchor in (*anchors, "system-other--first", "system-figure-paper--first"):
        assert outline.ids.count(anchor) == 1
        assert outline.links.count(f"#{anchor}") == 2  # from the table of all verdicts, and from itself


def test_identities_are_counted_separately(tmp_path):
    exact = {"kind": "identity", "named_controls": []}
    claims = [
        _claim(id="a", specific=True, controls={"untrained": {"status": "fails", "measured": 0.1}}),
        _claim(id="b", specific=False, controls={"untrained": {"status": "holds", "measured": 0.9}}),
        _claim(id="c"),
        _claim(id="d", status="undecided"),
        _claim(id="e", status="fails", specific=True),
        *(_claim(id=id, **exact) for id in "fgh"),
        _claim(id="i", status="fails", **exact),
        _claim(id="j", status="untested", **exact),
    ]
    other = _entry(name="another/figure", system="another", claims=[_claim(id="a"), _claim(id="b", **exact)])
    text = re.sub(r"\s+", " ", _Outline(_page(tmp_path, _entry(claims=claims), other)).text)
    assert "4 replicated 1 failing 1 undecided 0 untested 4 of 6 identities hold" in text
    assert "system 1 3 1 1 0 1 of 2 3 hold, 1 fail, 1 untested" in text
    assert "another 1 1 0 0 0 controls not run 1 hold, 0 fail" in text
    assert "total 2 4 1 1 0 1 of 2 4 hold, 1 fail, 1 untested" in text


def test_a_claim_shows_its_status_under_its_controls(tmp_path):
    controls = {"untrained": {"status": "holds", "measured": 0.96949}, "permuted_labels": {"status": "fails"}}
    broken = _claim(
        id="a", expected="≥ 0.9695", controls=controls, specific=False, unspecific="features are aligned at first too"
    )
    unmeasured = _claim(id="b", controls={"untrained": {"status": "untested", "measured": None}})
    claims = [broken, unmeasured, _claim(id="c", named_controls=[]), _claim(id="d", named_controls=["untrained"])]
    text = re.sub(r"\s+", " ", _Outline(_page(tmp_path, _entry(claims=claims))).text)
    assert "under untrained it holds, measured 0.96949" in text
    assert "under permuted_labels it fails" in text
    assert "under untrained it is untested" in text
    assert "unspecific features are aligned at first too" in text
    for text_part in ("not measured under controls", "no controls", "run"):
        assert text.count(text_part) >= 2, text_part  # in the table of all verdicts, and beside its figure


def test_earlier_verdicts_of_a_claim_are_shown_newest_first_and_at_most_eight(tmp_path):
    history = [
        {"status": "fails" if day % 2 else "holds", "date": f"2026-01-{day:02}", "sweep_run_id": f"{day:032x}"}
        for day in range(20, 10, -1)
    ]
    page = _page(tmp_path, _entry(claims=[_claim(history=history), _claim(id="new")]))
    shown = re.findall(r'<span class="dot (\w+)" role="img" aria-label="(\w+), ([\d-]+)" title="[^"]*, (\w+)">', page)
    assert shown == [(old["status"], old["status"], old["date"], old["sweep_run_id"]) for old in history[:8]]


def test_a_value_is_distinguishable_from_its_interval_and_its_bounds(tmp_path):
    claim = _claim(measured=1.0, ci=[0.9999999995, 1.0], expected="> 0.999999999")
    text = re.sub(r"\s+", " ", _Outline(_page(tmp_path, _entry(claims=[claim]))).text)
    assert "1 0.9999999995 to 1 required > 0.999999999" in text


def test_a_claim_shows_the_interval_that_decided_with_its_level_the_worst_seed_and_what_it_is_about(tmp_path):
    decided = {"level": 0.9875, "seeds": 3, "ci": [0.5, 0.9]}
    claim = _claim(about="median", measured=0.7, ci=[0.6, 0.8], decided=decided, worst=0.55)
    text = re.sub(r"\s+", " ", _Outline(_page(tmp_path, _entry(claims=[claim]))).text)
    assert "median 0.7 0.6 to 0.8 decided by 0.5 to 0.9, at 98.75%worst seed 0.55" in text
    same = _claim(measured=0.7, ci=[0.5, 0.9], decided=decided)
    assert "decided by" not in _Outline(_page(tmp_path, _entry(claims=[same]))).text


def test_a_claim_shows_what_became_of_it_under_its_controls(tmp_path):
    controls = {
        "untrained": {"state": "broken", "status": "undecided", "measured": 0.1},
        "permuted_labels": {"state": "undecided", "status": "undecided", "measured": 0.4},
    }
    page = _page(tmp_path, _entry(claims=[_claim(controls=controls)]))
    text = re.sub(r"\s+", " ", _Outline(page).text)
    assert "under untrained it breaks, measured 0.1 under permuted_labels it is undecided, measured 0.4" in text
    assert 'data-specific="undecided under controls"' in page


def test_values_and_durations_are_readable():
    assert parts({"a": 1, "b": {"c": 0.5}}) == [("a", "1"), ("b", "c: 0.5")]
    assert parts("text") == [("", "text")]
    assert parts(None) == [("", "")]
    assert [duration(s) for s in (None, 4.2, 59.96, 60, 3599.9, 7500)] == [
        *("", "4.2 s", "60 s", "1 min 0 s", "1 h 0 min", "2 h 5 min")
    ]
