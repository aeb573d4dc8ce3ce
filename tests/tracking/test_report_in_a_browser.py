"""The page in a browser, if one is installed: what the script does under the page's own security policy."""

import json
import re
import shutil
import subprocess

import pytest

from featurelab.tracking.report.page import render

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
ALONE = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--virtual-time-budget=9000"]
HARNESS = """<iframe src="index.html" width="1000" height="800"></iframe><pre></pre><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, results = {};
  const controls = page.querySelector(".filters"), table = page.querySelector("table.verdicts");
  const [text, output] = [controls.querySelector("input"), controls.querySelector("output")];
  const rows = () => Array.from(table.tBodies[0].rows).filter((row) => !row.hidden);
  const shown = () => rows().map((row) => row.cells[1].textContent.trim());
  const header = (name) => Array.from(table.tHead.rows[0].cells).find((cell) => cell.textContent === name);
  const sorted = (name) => { header(name).querySelector("button").click(); return [header(name).ariaSort, shown()]; };
  const choose = (name, value) => {
    const field = controls.querySelector(`select[name=${name}]`);
    field.value = value;
    field.dispatchEvent(new Event("change"));
    return shown();
  };
  const search = (words) => { text.value = words; text.dispatchEvent(new Event("input")); return shown(); };
  results.begins = [controls.hidden, output.textContent, shown()];
  results.measured = [sorted("Measured"), sorted("Measured")];
  results.verdict = sorted("Verdict");
  results.unsorted = header("Measured").ariaSort;
  results.figure = sorted("Figure");
  results.fails = choose("status", "fails");
  results.counted = output.textContent;
  results.all = choose("status", "");
  results.system = choose("system", "b <i>");
  controls.querySelector("button").click();
  results.identity = choose("kind", "identity");
  choose("kind", "");
  results.specific = choose("specific", "specific");
  choose("specific", "");
  results.words = search("THIRD a/figure");
  document.querySelector("pre").textContent = JSON.stringify(results);
};
</script>"""


def claim(statement, **fields):
    claim = {"id": statement, "statement": statement, "status": "holds", "documented": "holds", "paper": None}
    return claim | fields


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_the_page_in_a_browser_links_to_no_local_address(tmp_path):
    claims = [claim("first", measured=10.0)]
    damaged = {"name": "a/damaged", "left_out": "verdicts.json of run 0 is not JSON"}
    shown = {"name": "a/figure", "sweep_run_id": "5" * 32, "claims": claims, "not_drawn": "figure.png is a link"}
    render([shown, damaged], tmp_path)
    command = [BROWSER, *ALONE, f"--user-data-dir={tmp_path}/browser", "--dump-dom", f"file://{tmp_path}/index.html"]
    page = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert "first" in page
    links = re.findall(r'href="([^"]*)"', page)
    assert links
    assert [link for link in links if not link.startswith(("#", "files/"))] == []
    assert not re.search("127\\.0\\.0\\.1|localhost", page)
    assert "Left out: verdicts.json of run 0 is not JSON" in page
    assert "No drawing: figure.png is a link" in page
    assert "1 of 2 figures is left out" in page


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_the_table_sorts_filters_and_searches(tmp_path):
    claims = [
        claim("first", measured=10.0),
        claim("second", measured={"layer 1": 9.5, "layer 2": 0.0}, status="fails"),
        claim("third", specific=True, controls={"untrained": {"status": "fails"}}),
    ]
    others = [claim("fourth", measured=-1e-7, kind="identity")]
    entries = [
        {"name": "a/figure", "claims": claims},
        {"name": "b/figure", "system": "b <i>", "claims": others},
        {"name": "b/bare", "system": "b <i>"},
    ]
    render(entries, tmp_path)
    (tmp_path / "harness.html").write_text(HARNESS)
    command = [BROWSER, *ALONE, f"--user-data-dir={tmp_path}/browser", "--dump-dom", f"file://{tmp_path}/harness.html"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    results = json.loads(re.search("<pre>(.*?)</pre>", shown)[1].replace("&lt;", "<").replace("&gt;", ">"))
    all_claims = ["first", "second", "third", "fourth identity", "no claims"]
    assert results["begins"] == [False, "5 of 5 shown", all_claims]
    upwards = ["fourth identity", "second", "first"]
    assert results["measured"] == [
        ["ascending", [*upwards, "third", "no claims"]],
        ["descending", [*upwards[::-1], "third", "no claims"]],
    ]
    assert results["verdict"] == ["ascending", ["first", "third", "fourth identity", "second", "no claims"]]
    assert results["unsorted"] is None
    assert results["figure"] == ["ascending", all_claims]
    assert (results["fails"], results["counted"]) == (["second"], "1 of 5 shown")
    assert results["all"] == all_claims
    assert results["system"] == ["fourth identity", "no claims"]
    assert results["identity"] == ["fourth identity"]
    assert results["specific"] == ["third"]
    assert results["words"] == ["third"]
