"""`featurelab known`: what is on record of each claim, against the newest stored verdicts."""

from collections import Counter
from typing import Annotated

import typer

from featurelab.pipelines.engine.command.arguments import Json, Names
from featurelab.pipelines.engine.command.shared import connect
from featurelab.pipelines.engine.errors import RequestError, tell
from featurelab.pipelines.engine.experiment.catalogue import registry


def known(
    names: Names = None,
    write: Annotated[bool, typer.Option("--write", help="Write the stored verdicts into known.toml.")] = False,
    as_json: Json = False,
) -> None:
    """Compare known.toml, the record of what was found, with the newest stored verdicts, or write it from them.

    A stored verdict replaces the record if it rests on as many seeds, or was decided at a level on fewer seeds while
    the record names no level. Exits with 1 where a decided verdict contradicts the record, where a claim is recorded
    not to hold without a reason, and where an entry names no claim.
    """
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.verdict import findings

    experiments = registry.select(names or [])
    store = connect(create=False)
    comparisons = findings.compare(experiments, store)
    if write:
        try:
            files = findings.write(experiments, comparisons)
        except OSError as error:
            raise RequestError(f"cannot write {error.filename}: {error.strerror}") from None
        for file in files:
            tell(f"wrote {file}")
        comparisons = findings.compare(experiments, store)
    troubles = [(c, "contradicts the record") for c in comparisons if c.contradicts]
    troubles += [(c, "has no reason on record") for c in comparisons if c.lacks_reason]
    whole_systems = registry.select(sorted({experiment.system for experiment in experiments}))
    orphans = findings.entries_without_claim(whole_systems)
    if as_json:
        terminal.emit({"claims": [c.as_dict() for c in comparisons], "entries_without_claim": orphans})
    else:
        for comparison, trouble in troubles:
            recorded = comparison.recorded.status if comparison.recorded else "holds"
            stored = f", stored: {comparison.stored.status}" if comparison.stored else ""
            place = f"{comparison.experiment}: {comparison.claim} at {comparison.scale} scale"
            tell(f"{place} {trouble} (recorded: {recorded}{stored})")
        for entry in orphans:
            tell(f"{entry} names no claim")
        counts = Counter("with" if c.stored else "without" for c in comparisons)
        newer = sum(c.replaces for c in comparisons)
        tell(f"{len(comparisons)} entries, {counts['with']} with a stored verdict, {newer} of them to be written")
    raise typer.Exit(1 if troubles or orphans else 0)
