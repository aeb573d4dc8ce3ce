"""Write the generated tables of these pages again, from the declarations, each system's `known.toml`, and
`benchmarks.json`, which `python -m benchmarks --out docs/benchmarks.json` writes.

    python docs/tables.py

Tables stand between `<!-- name: begin -->` and `<!-- name: end -->`, below what people wrote there; a sentence has the
place to itself. A page without a marker does not get that table.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.experiment import numbers
from featurelab.pipelines.engine.experiment.bounds import at_least
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.claims import STATUSES, Claim
from featurelab.pipelines.engine.experiment.config import Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.known import Finding
from featurelab.tracking.numbers import measurement, named, number

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
BENCHMARKS = FOLDER / "benchmarks.json"
PENDING = "Not measured on the current code yet: run `make bench`."
IDENTITY = " (identity)"
ORIGINS = {"paper": "", "corrected": " (corrected)", "ours": " (ours)"}
COUNTED = ["hold", "fail", "undecided", "untested", "specific, of those with controls", "identities hold"]
CHAPTERS = [  # of the dissertation, by which we number what these papers show
    "input_structure", "gradient_features", "fourier_circuits", "icl_scale", "nuclear_norm_dg", "contrastive_tradeoff",
    "looped_transformer", "gemfilter",
]  # fmt: skip
UNMEASURED = Finding(status="untested", reason="not measured since the claim got this form")
Row = Sequence[Any]


def table(header: Row, rows: Iterable[Row]) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in cells)


def figures(system: str) -> str:
    rows = [(f"`{e.name}`", e.figure, e.title, f"{e.minutes:g}") for e in registry.experiments(system)]
    return table(["experiment", "figure", "what it shows", "minutes"], rows)


def measured(system: str) -> str:
    rows = []
    for experiment, claim, finding in _findings(system):
        values, intervals = measurement(finding.measured, finding.ci, claim.expected)
        specific = {None: "-", True: "yes", False: "no"}[finding.specific]
        rows.append(
            (
                experiment.figure,
                claim.says + ORIGINS[claim.origin],
                named(values),
                named(intervals),
                _deciding(claim, finding),
                named(measurement(finding.worst, None, claim.expected)[0]),
                number(claim.expected),
                number(claim.paper),
                finding.seeds or 0,
                _verdict(claim, finding),
                specific,
            )
        )
    header = ["figure", "claim", "measured", "95% interval", "decided by", "worst seed"]
    header += ["expected", "paper", "seeds", "verdict", "specific"]
    return table(header, rows)


def unspecific(system: str) -> str:
    """The claims that hold, and hold under a control too: where, and why that is as it should be."""
    rows = [
        (f"`{claim.id}`", experiment.figure, _under(finding), claim.unspecific)
        for experiment, claim, finding in _findings(system)
        if finding.specific is False and finding.status == "holds"
    ]
    return table(["claim", "figure", "verdict under controls", "why"], rows)


def failing(system: str) -> str:
    rows = [
        (f"`{claim.id}`", experiment.figure, finding.reason + " (undecided)" * (finding.status == "undecided"))
        for experiment, claim, finding in _findings(system)
        if finding.status in ("fails", "undecided")
    ]
    return table(["claim", "figure", "why"], rows)


def differences(system: str) -> str:
    """The claims of a paper that fail: what it says, what was measured here, and why."""
    rows = []
    for experiment, claim, finding in _findings(system):
        if finding.status == "fails" and claim.origin != "ours":
            values, intervals = measurement(finding.measured, finding.ci, claim.expected)
            here = f"{named(values)} ({named(intervals)})" if intervals else named(values)
            says = claim.says + ORIGINS[claim.origin]
            rows.append(
                (
                    claim.where or experiment.figure,
                    says,
                    number(claim.paper),
                    number(claim.expected),
                    here,
                    finding.reason,
                )
            )
    return table(["where", "the paper says", "published", "required", "measured here (95% interval)", "why"], rows)


def verdicts() -> str:
    """Every claim in a row: what the mean alone would say of it, its verdict, and its verdicts under controls."""
    rows = []
    for experiment, claim, finding in _findings(None):
        intervals = named(measurement(finding.measured, finding.ci, claim.expected)[1])
        verdict, seeds = _verdict(claim, finding), finding.seeds or 0
        by_mean, under = _by_mean(claim, finding), _under(finding)
        rows.append((experiment.name, f"`{claim.id}`", by_mean, verdict, intervals, seeds, under))
    header = ["experiment", "claim", "by the mean alone", "verdict", "95% interval", "seeds", "under controls"]
    return table(header, rows)


def on_real_data(system: str) -> str:
    """What was measured on real data, beside the laptop's verdicts."""
    rows = []
    for experiment, claim, small, real in _at_both_scales(system):
        values, intervals = measurement(real.measured, real.ci, claim.expected)
        found = f"{named(values)} ({named(intervals)}; {real.seeds} seeds)" if real.seeds else "-"
        cells = _state(claim, small), _state(claim, real), found, number(claim.expected), real.reason or "-"
        rows.append((experiment.figure, claim.says + ORIGINS[claim.origin], *cells))
    header = ["figure", "claim", "laptop", "real data", "measured on real data (95% interval)", "expected", "why"]
    return table(header, rows)


def two_scales() -> str:
    """The verdicts on laptop and on real data, of every claim that has both."""
    rows = []
    for experiment, claim, small, real in _at_both_scales():
        interval = named(measurement(real.measured, real.ci, claim.expected)[1])
        shown = (_state(claim, small), _state(claim, real), interval, real.seeds or 0, real.reason or "-")
        rows.append((experiment.name, f"`{claim.id}`", *shown))
    return table(["experiment", "claim", "laptop", "desktop", "95% interval, desktop", "seeds", "why"], rows)


def agreement() -> str:
    """By system: how many claims have a verdict at both scales, and in how many the verdicts are the same."""
    rows = []
    for system in registry.systems():
        pairs = [(small.status, real.status) for _, _, small, real in _at_both_scales(system)]
        judged = [pair for pair in pairs if "untested" not in pair]
        if pairs:
            decided = [pair for pair in judged if "undecided" not in pair]
            same = sum(small == real for small, real in decided)
            rows.append((f"[`{system}`]({system}.md)", len(judged), len(decided), same, len(decided) - same))
    total = ("all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))) if rows else ()
    header = ["system", "claims measured at both scales", "decided at both", "the same verdict", "opposite verdicts"]
    return table(header, [*rows, total] if total else rows)


def _at_both_scales(system: str | None = None) -> Iterator[tuple[Experiment, Claim, Finding, Finding]]:
    """Every claim that was recorded on real data, with what was found at laptop scale and there."""
    for experiment, claim, finding in _findings(system):
        real = claim.recorded().desktop
        if real and (real.seeds is not None or real.status == "untested"):
            yield experiment, claim, finding, real


def _state(claim: Claim, finding: Finding) -> str:
    """A verdict, and whether the controls bear it out."""
    specific = {None: "", True: ", specific", False: ", not specific"}[finding.specific]
    return _verdict(claim, finding) + specific


def times() -> str:
    """By system: declared minutes on two cores at both scales, and hours of one GPU by the cost models."""
    systems = {f"[`{system}`]({system}.md)": registry.experiments(system) for system in registry.systems()}
    every = [experiment for experiments in systems.values() for experiment in experiments]
    rows = [(name, *_times(experiments)) for name, experiments in {**systems, "all": every}.items()]
    header = ["system", "figures", "minutes", "figures with a desktop preset", "minutes, desktop"]
    return table([*header, "GPU-hours, desktop grids", "GPU-hours, paper grids"], rows)


def _times(experiments: Sequence[Experiment]) -> list[str]:
    desktop = [experiment for experiment in experiments if "desktop" in experiment.scales]
    return [
        str(len(experiments)),
        _minutes(experiments, "laptop"),
        str(len(desktop) or "-"),
        _minutes(desktop, "desktop"),
        _gpu_hours(desktop, "desktop"),
        _gpu_hours(experiments, "paper"),
    ]


def _minutes(experiments: Sequence[Experiment], scale: Scale) -> str:
    return f"{sum(experiment.minutes_at(scale) or 0 for experiment in experiments):.3g}" if experiments else "-"


def _gpu_hours(experiments: Sequence[Experiment], scale: Scale) -> str:
    hours = sum(experiment.gpu_hours(scale) or 0 for experiment in experiments)
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}" if hours else "-"


def summary() -> str:
    """How many claims of each system hold, fail, ...; how many of those that hold are broken by every control."""
    rows = [(f"[`{system}`]({system}.md)", *_in_words(_counts(system))) for system in registry.systems()]
    return table(["system", *COUNTED], rows)


def totals() -> str:
    """The counts of `summary` for all systems together."""
    return table(COUNTED, [_in_words([sum(column) for column in zip(*map(_counts, registry.systems()), strict=True)])])


def _counts(system: str) -> list[int]:
    """Claims by status; of those that hold the specific ones and those with controls; identities that hold, and all."""
    every = [(claim, finding) for _, claim, finding in _findings(system)]
    claims = [finding for claim, finding in every if claim.kind == "claim"]
    by_status = [sum(finding.status == status for finding in claims) for status in STATUSES]
    under = [finding.specific for finding in claims if finding.status == "holds" and finding.specific is not None]
    exact = [finding.status == "holds" for claim, finding in every if claim.kind == "identity"]
    return [*by_status, sum(under), len(under), sum(exact), len(exact)]


def _in_words(counts: Sequence[int]) -> list[str]:
    *by_status, specific, under_controls, exact, identities = counts
    return [*map(str, by_status), f"{specific} of {under_controls}", f"{exact} of {identities}"]


def by_number() -> str:
    """Each figure, table and theorem, once for each of its experiments: its number in the published paper where that
    is another one that we know, its file, and a picture where we have one."""
    rows = []
    for system in registry.systems():
        entries: dict[str, list[Experiment]] = {}
        for experiment in registry.experiments(system):
            for entry in experiment.figures:
                entries.setdefault(entry, []).append(experiment)
        for entry in sorted(entries, key=numbers.order):
            for experiment in entries[entry]:
                file = source(experiment)
                published, link = experiment.published.get(entry, "-"), f"[{file}](../{file})"
                rows.append((system, entry, published, f"`{experiment.name}`", link, _picture(experiment)))
    return table(["system", "number", "published number", "experiment", "file", "picture"], rows)


def published() -> str:
    """One sentence: of which systems we know numbers in the published paper, and how many of how many."""
    known, unknown = [], []
    for system in CHAPTERS:
        experiments = registry.experiments(system)
        entries = {entry for experiment in experiments for entry in experiment.figures}
        other = {entry for experiment in experiments for entry in experiment.published}
        if other:
            known.append(f"`{system}` ({len(other)} of {len(entries)})")
        else:
            unknown.append(f"`{system}`")
    sentence = f"Published numbers are known for {_listed(known)}; {_listed(unknown)} have only the dissertation's."
    return textwrap.fill(sentence, 120, break_long_words=False, break_on_hyphens=False)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def benchmark(result: Mapping[str, Any]) -> str:
    """The rows of one benchmark, ours next to its peers."""
    if str(ROOT) not in sys.path:  # as in `python docs/tables.py`
        sys.path.append(str(ROOT))
    from benchmarks._rows import COLUMNS, cells

    return table(COLUMNS, map(cells, result["rows"]))


def measured_on(results: Mapping[str, Mapping[str, Any]]) -> str:
    """When and where the numbers of each benchmark were measured."""
    rows = [(f"`{name}`", r["date"], r["cores"], r["python"], f"{r['seconds']:.0f}") for name, r in results.items()]
    return table(["benchmark", "measured on", "cores", "Python", "took, s"], rows)


def _findings(system: str | None) -> Iterator[tuple[Experiment, Claim, Finding]]:
    for one in [system] if system else registry.systems():
        for experiment in registry.experiments(one):
            for claim in experiment.claims:
                finding = claim.recorded().laptop or UNMEASURED
                measured = finding.seeds is not None or finding.status == "untested"
                yield experiment, claim, finding if measured else UNMEASURED


def _verdict(claim: Claim, finding: Finding) -> str:
    return finding.status + IDENTITY * (claim.kind == "identity")


def _under(finding: Finding) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {status}" for name, status in finding.controls.items()) or "-"


def _deciding(claim: Claim, finding: Finding) -> str:
    """The interval that decided and its level."""
    if finding.level is None:
        return "-"
    ends = measurement(finding.measured, finding.deciding, claim.expected)[1]
    return f"{named(ends)} ({100 * finding.level:.4g}%)"


def _by_mean(claim: Claim, finding: Finding) -> str:
    if finding.measured is None:
        return "untested"
    values = finding.measured if isinstance(finding.measured, dict) else {"": finding.measured}
    bounds = claim.rule([values]).bounds
    if isinstance(claim.least, Mapping):
        bounds = {**bounds, **{part: at_least(share) for part, share in claim.least.items()}}
    elif claim.least is not None:
        bounds = {"": at_least(claim.least)}
    return "holds" if all(bound.holds(float(values[part])) for part, bound in bounds.items()) else "fails"  # type: ignore[arg-type]


def source(experiment: Experiment) -> str:
    """The file that declares an experiment, from the root: the one that writes its name."""
    system, _, name = experiment.name.partition("/")
    folder = ROOT / "pipelines" / system
    declares = re.compile(rf'(?:name=|variant\(\s*)"(?:{system}/)?{name}"')
    for file in sorted(folder.rglob("*.py"), key=lambda file: file.stem != name):
        if declares.search(file.read_text(encoding="utf-8")):
            return str(file.relative_to(ROOT))
    function = experiment.drawing.draw if experiment.drawing else experiment.run_trial
    return "/".join(["pipelines", *str(getattr(function, "__module__", "")).split(".")[2:]]) + ".py"


def _picture(experiment: Experiment) -> str:
    file = FOLDER / "images" / "figures" / f"{experiment.name.replace('/', '.')}.png"
    return f"[picture](images/figures/{file.name})" if file.exists() else "-"


PARTS = (figures, measured, on_real_data, unspecific, failing)  # of a system's page


def write(page: Path, parts: Mapping[str, str]) -> None:
    text = page.read_text(encoding="utf-8").replace(f"{PENDING}\n", "")  # no table, so it would stay beside one
    for name, content in parts.items():
        kept, replaced = (r"(?:(?!\|).*\n)*", r"(?:\|.*\n)*") if content.startswith("|") else ("", r"(?:(?!<!--).*\n)*")
        pattern = rf"(<!-- {name}: begin -->\n{kept}){replaced}(<!-- {name}: end -->)"
        text = re.sub(pattern, lambda match, content=content: f"{match[1]}{content}\n{match[2]}", text)
    page.write_text(text, encoding="utf-8")


def pages() -> dict[Path, dict[str, str]]:
    """Every page with generated tables, and its tables by name."""
    written = {
        FOLDER / f"{system}.md": {part.__name__: part(system) for part in PARTS} for system in registry.systems()
    }
    of_all = (summary, times, verdicts, two_scales, agreement)
    written[FOLDER / "verdicts.md"] = {part.__name__: part() for part in of_all}
    written[FOLDER / "figures.md"] = {"published": published(), "by_number": by_number()}
    written[ROOT / "README.md"] = {"totals": totals()}
    written[FOLDER / "differences.md"] = {f"differences_{system}": differences(system) for system in registry.systems()}
    results = json.loads(BENCHMARKS.read_text(encoding="utf-8"))
    places = re.findall("<!-- benchmark_(.*?): begin -->", (FOLDER / "scaling.md").read_text(encoding="utf-8"))
    pending = dict.fromkeys(set(places) - results.keys(), PENDING)
    shown = {name: benchmark(result) for name, result in results.items()}
    written[FOLDER / "scaling.md"] = {f"benchmark_{name}": text for name, text in (pending | shown).items()}
    written[FOLDER / "scaling.md"]["measured_on"] = measured_on(results)
    return written


if __name__ == "__main__":
    for page, parts in pages().items():
        write(page, parts)
