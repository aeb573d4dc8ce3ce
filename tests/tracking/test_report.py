from __future__ import annotations

import base64
import html.parser
import re

import pytest

from tracking.report import duration, number, parts, render

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _claim(**given):
    claim = {"id": "c", "statement": "it is so", "origin": "paper", "status": "holds", "documented": "holds"}
    rest = dict.fromkeys(["reason", "measured", "ci", "expected", "paper", "where", "seeds"])
    return {**claim, **rest, **given}


def _entry(**given):
    entry = {"name": "system/figure", "system": "system", "figure": "Fig. 2", "title": "A title", "scale": "laptop"}
    entry |= {"sweep_run_id": "s" * 32, "trial_run_ids": ["a" * 32, "b" * 32], "seconds": 75.0, "trials": 2}
    entry |= {
        "config": {"lr": 0.1},
        "command": "featurelab reproduce system/figure",
        "png": PNG,
        "caption": "A caption",
    }
    return {**entry, "claims": [_claim()], **given}


def _page(tmp_path, *entries):
    path = render(entries, tmp_path / "report")
    assert path == tmp_path / "report" / "index.html"
    return path.read_text()


class _Outline(html.parser.HTMLParser):
    """Collects tags, what they point to, and that every opened tag is closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.links, self.ids, self.text = [], set(), [], set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        values = dict(attributes)
        self.links += [values[key] for key in ("src", "href") if key in values]
        self.ids.add(values.get("id"))
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_says_everything_and_needs_nothing_else(tmp_path):
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
    assert "script" not in outline.tags
    assert "link" not in outline.tags
    assert [link for link in outline.links if not link.startswith(("data:image/png;base64,", "#"))] == []
    assert {link[1:] for link in outline.links if link.startswith("#")} <= outline.ids
    assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in outline.links
    text = re.sub(r"\s+", " ", outline.text)
    for said in ("Fig. 2. A title", "A caption", "0.1235", "[0.1, 0.2]", "at most 0.3", "Table 4", "3 seeds"):
        assert said in text
    for said in (
        "saturated",
        "width 128 2.5",
        "a" * 32,
        "featurelab reproduce system/figure",
        "1 min 15 s",
        "no claims",
    ):
        assert said in text
    assert "no claims" in text
    assert "1 holds 2 fails 1 untested 1 other than documented" in text
    assert text.count("documented: holds") == 2  # once in the table of all, once beside its figure
    assert text.count("as documented") == 2


def test_whatever_is_written_in_an_entry_is_shown_and_never_run(tmp_path):
    evil = '<script>alert("x")</script><img src=x onerror=alert(1)>'
    claim = _claim(**dict.fromkeys(["id", "statement", "origin", "reason", "measured", "expected", "where"], evil))
    claim |= {"ci": [evil], "paper": {evil: evil}, "documented": evil, "seeds": evil, "status": evil}
    fields = ["name", "system", "figure", "title", "scale", "sweep_run_id", "command", "caption"]
    entry = _entry(**dict.fromkeys(fields, evil), claims=[claim], config={evil: evil}, trial_run_ids=[evil])
    outline = _Outline(_page(tmp_path, {**entry, "url": "javascript:alert(1)"}))
    assert "script" not in outline.tags
    assert [link for link in outline.links if not link.startswith(("data:image/png;base64,", "#"))] == []
    assert outline.text.count(evil) > 15


def test_what_is_absent_is_shown_as_absent(tmp_path):
    text = _Outline(_page(tmp_path, {"name": "system/bare", "claims": [{"status": "untested"}]})).text
    assert "system/bare" in text
    assert "not measured" in text
    assert "None" not in text
    assert "Nothing has been reproduced yet" in _page(tmp_path)
    with pytest.raises(KeyError):
        _page(tmp_path, {"title": "nameless"})


def test_runs_are_linked_where_an_address_is_given(tmp_path):
    assert "http://127.0.0.1:5000/#/x" in _Outline(_page(tmp_path, _entry(url="http://127.0.0.1:5000/#/x"))).links


def test_values_are_written_as_people_read_them():
    assert [number(v) for v in (0.123456, 1e-7, 1_500_000, True, None, float("nan"), (0.1, 2))] == [
        *("0.1235", "1e-07", "1500000", "True", "", "nan", "[0.1, 2]")
    ]
    assert parts({"a": 1, "b": {"c": 0.5}}) == [("a", "1"), ("b", "c 0.5")]
    assert parts("text") == [("", "text")]
    assert [duration(s) for s in (None, 4.2, 59.96, 60, 3599.9, 7500)] == [
        *("", "4.2 s", "60 s", "1 min 0 s", "1 h 0 min", "2 h 5 min")
    ]
