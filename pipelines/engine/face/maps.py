"""A map: where the claims of a figure hold, over some of its settings."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from featurelab.pipelines.engine.face.show import Picture, page
from featurelab.pipelines.engine.libraries import pd

if TYPE_CHECKING:
    from featurelab.pipelines.engine.verdict.maps.mapping import Mapped

VERDICT = ("id", "status", "measured", "ci", "seeds", "reason")


@dataclass(frozen=True, eq=False)
class Map:
    """A figure that was reproduced in every cell of some settings, with its claims judged in each cell."""

    mapped: "Mapped"

    @property
    def name(self) -> str:
        """The name of the map, with which an interrupted one is resumed."""
        return self.mapped.name

    @property
    def sweep_run_id(self) -> str:
        """The id of the run that holds its verdicts and pictures."""
        return self.mapped.sweep_run_id

    def cells(self) -> pd.DataFrame:
        """Return a row for each claim in each cell: the settings, the verdict, the measured value and its interval."""
        rows = [
            {**cell.config, **{key: getattr(verdict, key) for key in VERDICT}}
            for cell in self.mapped.cells
            for verdict in cell.verdicts
        ]
        return pd.DataFrame(rows, columns=[*self.mapped.over, *VERDICT])

    def figure(self, claim: str) -> Picture:
        """Return the picture of one claim: a square for each cell. Raises `RequestError` for an unknown claim."""
        from featurelab.pipelines.engine.verdict.maps.mapping import drawn

        return Picture(drawn(self.mapped, claim))

    def __repr__(self) -> str:
        told = ", ".join(f"{number} {status}" for status, number in self.mapped.counts.items() if number)
        return f"<map {self.name} of {self.mapped.experiment.name}: {len(self.mapped.cells)} cells, {told}>"

    def _repr_html_(self) -> str:
        first = self.mapped.experiment.claims[0].id
        return page(f"{self.mapped.experiment.name}: map {self.name}", self.cells(), self.figure(first))
