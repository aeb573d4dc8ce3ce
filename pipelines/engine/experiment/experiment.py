"""A figure or table of a paper as a sweep: what a trial does, the grid, the claims about it, the drawing."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from featurelab.pipelines.engine.experiment.axes import Axis, Grid, expand
from featurelab.pipelines.engine.experiment.claims import Bound, Claim, Measured, Origin, Status
from featurelab.pipelines.engine.experiment.config import Config

if TYPE_CHECKING:
    from featurelab.pipelines.engine.experiment.cost import Cost
    from featurelab.pipelines.engine.experiment.results import Results

Scale = Literal["laptop", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class Drawing:
    """How a figure is drawn: `draw(results, axes)` on a (rows, cols) array of matplotlib axes, `size` in inches."""

    draw: Callable[["Results", Any], None]
    rows: int
    cols: int
    size: tuple[float, float]


@dataclass(eq=False, kw_only=True)
class Experiment:
    """One figure or table.

    Args:
        name: `<system>/<experiment>`.
        figure: the paper's own label, as "Fig. 2".
        title: what the figure shows, one line.
        laptop, paper: the two presets of one config; they differ in values only.
        grid: the axes that make the figure, seeds included.
        paper_grid: the axes at paper scale where they are others.
        sweep_axes: what a researcher would search: a learning rate, a width or capacity, a regulariser.
        metric, mode: what a sweep ranks its trials by unless told.
        minutes: laptop grid on two cores, measured.
        needs: datasets that the paper preset reads.
        stand_in: how the laptop preset differs from the paper in kind, not just in size; empty where it does not.
        headline: whether a first look should show it.
    """

    name: str
    figure: str
    title: str
    laptop: Config
    paper: Config
    grid: Grid
    paper_grid: Grid | None = None
    sweep_axes: Mapping[str, Axis] = field(default_factory=dict)
    metric: str = "loss/test"
    mode: Literal["min", "max"] = "min"
    minutes: float
    needs: tuple[str, ...] = ()
    stand_in: str = ""
    headline: bool = False
    caption: str = ""
    claims: list[Claim] = field(default_factory=list)
    run_trial: Callable[[Any, Any], None] | None = None
    drawing: Drawing | None = None
    estimate: "Callable[[Any], Cost] | None" = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9_]+/[a-z0-9_]+", self.name):
            raise ValueError(f"an experiment's name is <system>/<experiment> in lower case, not {self.name!r}")
        if type(self.laptop) is not type(self.paper):
            raise ValueError(f"{self.name}: the two presets are of different config types")
        for scale in SCALES:
            self.configs(scale)

    @property
    def system(self) -> str:
        return self.name.partition("/")[0]

    def preset(self, scale: Scale) -> Config:
        return self.laptop if scale == "laptop" else self.paper

    def grid_of(self, scale: Scale) -> Grid:
        return self.paper_grid if scale == "paper" and self.paper_grid is not None else self.grid

    def configs(self, scale: Scale) -> list[Config]:
        """The trials that make the figure at this scale, in grid order."""
        preset = self.preset(scale)
        return [preset.but(**point) for point in expand(self.grid_of(scale))]

    def varied(self, scale: Scale) -> list[str]:
        """The fields that the figure's grid varies."""
        return [name for key in self.grid_of(scale) for name in ((key,) if isinstance(key, str) else key)]

    def grid_as_text(self, scale: Scale) -> dict[str, list[Any]]:
        """The grid with fields that vary together joined by `+`, as JSON and pages want it."""
        return {"+".join([k] if isinstance(k, str) else k): list(v) for k, v in self.grid_of(scale).items()}

    def trial(self, function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """Decorator: `function(config, recorder)` is one run of this experiment."""
        self.run_trial = function
        return function

    def claim(
        self,
        id: str,
        *,
        says: str,
        expect: Bound | Mapping[str, Bound],
        paper: str | float | None = None,
        where: str = "",
        origin: Origin = "paper",
        documented: Status = "holds",
        because: str = "",
        seeds: int = 3,
    ) -> Callable[[Callable[["Results"], Measured]], Callable[["Results"], Measured]]:
        """Decorator: `function(results of one seed)` measures this claim; see `Claim`."""
        if any(known.id == id for known in self.claims):
            raise ValueError(f"{self.name} has two claims called {id}")
        if documented == "fails" and not because:
            raise ValueError(f"claim {id} is documented to fail: say why in one sentence")

        def add(function: Callable[["Results"], Measured]) -> Callable[["Results"], Measured]:
            self.claims.append(
                Claim(
                    id=id,
                    says=says,
                    measure=function,
                    expect=expect,
                    paper=paper,
                    where=where or self.figure,
                    origin=origin,
                    documented=documented,
                    because=because,
                    seeds=seeds,
                )
            )
            return function

        return add

    def draw(
        self, rows: int = 1, cols: int = 1, size: tuple[float, float] = (7.0, 4.0)
    ) -> Callable[[Callable[["Results", Any], None]], Callable[["Results", Any], None]]:
        """Decorator: `function(results, axes)` draws the figure on a (rows, cols) array of matplotlib axes."""

        def keep(function: Callable[["Results", Any], None]) -> Callable[["Results", Any], None]:
            self.drawing = Drawing(function, rows, cols, size)
            return function

        return keep

    def cost(self, function: "Callable[[Any], Cost]") -> "Callable[[Any], Cost]":
        """Decorator: `function(config)` estimates what one trial needs."""
        self.estimate = function
        return function

    def summary(self) -> dict[str, Any]:
        """What `featurelab list --json` says of this experiment."""
        return {
            "name": self.name,
            "system": self.system,
            "figure": self.figure,
            "title": self.title,
            "scales": {
                "laptop": {"minutes": self.minutes},
                "paper": {"gpu_hours": self.gpu_hours("paper"), "needs": list(self.needs)},
            },
            "claims": [claim.id for claim in self.claims],
            "headline": self.headline,
        }

    def describe(self, scale: Scale) -> dict[str, Any]:
        """What `featurelab show --json` says of this experiment."""
        preset = self.preset(scale)
        fields = type(preset).model_fields.items()
        return self.summary() | {
            "scale": scale,
            "fields": [{"name": n, "value": getattr(preset, n), "description": f.description or ""} for n, f in fields],
            "config": preset.model_dump(mode="json"),
            "grid": self.grid_as_text(scale),
            "sweep_axes": {name: str(axis) for name, axis in self.sweep_axes.items()},
            "metric": self.metric,
            "mode": self.mode,
            "stand_in": self.stand_in,
            "claims": [
                {
                    "id": claim.id,
                    "statement": claim.says,
                    "origin": claim.origin,
                    "expected": claim.expected,
                    "paper": claim.paper,
                    "where": claim.where,
                    "documented": claim.documented,
                    "reason": claim.because,
                }
                for claim in self.claims
            ],
        }

    def gpu_hours(self, scale: Scale) -> float | None:
        """Estimated GPU-hours of the whole grid, to three digits; None where no estimate is declared."""
        if self.estimate is None:
            return None
        return float(f"{sum(self.estimate(config).gpu_hours for config in self.configs(scale)):.3g}")
