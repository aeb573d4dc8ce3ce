"""A figure or table of a paper as a sweep: what a trial does, the grid, the claims about it, the drawing."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from typing_extensions import TypeVar

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment import known, numbers
from featurelab.pipelines.engine.experiment.axes import Axis, Grid, along, among, expand, without_seeds
from featurelab.pipelines.engine.experiment.bounds import Bound
from featurelab.pipelines.engine.experiment.claims import Claim, Kind, Measured, Origin
from featurelab.pipelines.engine.experiment.config import SCALES, Config, Scale, controls_of, seeded_from
from featurelab.pipelines.engine.experiment.evidence import About

if TYPE_CHECKING:
    from featurelab.pipelines.engine.experiment.cost import Cost
    from featurelab.pipelines.engine.experiment.results import Results
    from featurelab.tracking import Recorder

C = TypeVar("C", bound=Config, default=Any)  # the settings of an experiment's trials
D = TypeVar("D", bound=Config)  # those of a variant with a config of its own
Measure = TypeVar("Measure", bound="Callable[[Results], Measured]")
INHERITED = (
    "grid",
    "paper_grid",
    "sweep_axes",
    "metric",
    "mode",
    "minutes",
    "trains",
    "needs",
    "stand_in",
    "caption",
    "small",
    "controls",
)
SEEDS = 3  # that a claim needs unless it says otherwise
SMALL_SEEDS = 2  # with which such a claim is checked at small sizes: one would not show what depends on the others
HANDED_DOWN = ("run_trial", "drawing", "estimate")  # to variants, also once they are made


@dataclass(frozen=True)
class Drawing:
    """How a figure is drawn: `draw(results, axes)` on a (rows, cols) array of matplotlib axes, `size` in inches."""

    draw: Callable[["Results", Any], None]
    rows: int
    cols: int
    size: tuple[float, float]


@dataclass(eq=False, kw_only=True)
class Experiment(Generic[C]):
    """One figure or table, whose trials have settings of type `C`.

    Args:
        name: `<system>/<experiment>`.
        figures: each figure, table and theorem that it makes, as ("Fig. 2", "Fig. 3"), in the source that we read;
            empty for a figure of ours. Several experiments may share one.
        published: the number in the published paper of those in `figures` for which we know another one there, as
            {"Fig. 9.5": "Fig. 5"}.
        part: what this experiment shows of its figures, where it is not all: "trained", "one model".
        title: what the figure shows, one line.
        laptop, paper: the presets of one config; they differ in values only.
        desktop: a third preset, where that of the laptop stands in for photographs or texts: real public data, as near
            to the paper's setting as two cores allow.
        grid: the axes that make the figure, seeds included.
        desktop_grid, paper_grid: the axes at that scale where they are others.
        sweep_axes: what a researcher would search: a learning rate, a width or capacity, a regulariser.
        metric, mode: what a sweep ranks its trials by unless told.
        minutes, desktop_minutes: laptop and desktop grid on two cores, measured.
        trains: False for closed forms and for measurements at initialisation, which have no learning rate to sweep.
        needs: datasets that the paper preset reads.
        stand_in: how the laptop preset differs from the paper in kind, not just in size; empty where it does not.
        reduced: how the desktop preset differs from that of the paper.
        headline: whether a first look should show it.
        small: settings at which the whole laptop grid runs in seconds, for tests and `featurelab check`; of an axis of
            the grid, the values that it then has.
        controls: controls that are expected to break each claim that names none itself: all that the experiment can be
            run under, unless given. Identities have none.
        reads: a figure whose trials include those of this one: reproduced together, they are trained once.
    """

    name: str
    figures: tuple[str, ...] = ()
    published: Mapping[str, str] = field(default_factory=dict)
    part: str = ""
    title: str
    laptop: C
    paper: C
    desktop: C | None = None
    grid: Grid
    desktop_grid: Grid | None = None
    paper_grid: Grid | None = None
    sweep_axes: Mapping[str, Axis] = field(default_factory=dict)
    metric: str = "loss/test"
    mode: Literal["min", "max"] = "min"
    minutes: float
    desktop_minutes: float | None = None
    trains: bool = True
    needs: tuple[str, ...] = ()
    stand_in: str = ""
    reduced: str = ""
    headline: bool = False
    caption: str = ""
    small: Mapping[Any, Any] = field(default_factory=dict)
    controls: tuple[str, ...] | None = None
    reads: "Experiment | None" = None
    claims: list[Claim] = field(default_factory=list)
    run_trial: "Callable[[C, Recorder], None] | None" = None
    drawing: Drawing | None = None
    estimate: "Callable[[C], Cost] | None" = None
    variants: "list[Experiment[C]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        numbers.label([*self.figures, *self.published.values()])
        if others := set(self.published) - set(self.figures):
            raise ValueError(f"{self.name}: published names {', '.join(sorted(others))}, which figures does not")
        if not re.fullmatch(r"[a-z0-9_]+/[a-z0-9_]+", self.name):
            raise ValueError(f"an experiment's name is <system>/<experiment> in lower case, not {self.name!r}")
        if any(type(self.preset(scale)) is not type(self.laptop) for scale in self.scales):
            raise ValueError(f"{self.name}: the presets are of different config types")
        if (self.desktop is None) != (self.desktop_minutes is None):
            raise ValueError(f"{self.name}: a desktop preset and desktop_minutes belong together")
        for scale in self.scales:
            # crossings are checked where trials are asked for: all grids together have tens of thousands
            self.preset(scale).each(along(self.grid_of(scale)))
            if reads := self.reads:
                if scale not in reads.scales:
                    raise ValueError(f"{self.name}: {reads.name}, which it reads, has no {scale} preset")
                if not among(self.preset(scale), self.grid_of(scale), reads.preset(scale), reads.grid_of(scale)):
                    raise ValueError(f"{self.name}: {reads.name}, which it reads, lacks some of its {scale} trials")
        self.laptop.each(along(self._small_grid()))

    @property
    def system(self) -> str:
        return self.name.partition("/")[0]

    @property
    def published_as(self) -> str:
        """Its numbers in the published paper next to ours: "Fig. 9.2 is Fig. 2, Fig. 9.5 is Fig. 5"."""
        return ", ".join(f"{ours} is {theirs}" for ours, theirs in self.published.items())

    @property
    def figure(self) -> str:
        """The numbers as a label, "Figs. 2, 3, trained"; of a figure without one its part, or its own name."""
        label = ", ".join(filter(None, [numbers.label(self.figures), self.part]))
        return label or self.name.partition("/")[2].replace("_", " ").capitalize()

    @property
    def scales(self) -> list[Scale]:
        """The scales at which it has a preset."""
        return [scale for scale in SCALES if getattr(self, scale) is not None]

    def preset(self, scale: Scale) -> C:
        """The settings of a scale; raises RequestError where it has none of that scale."""
        preset: C | None = getattr(self, scale)
        if preset is None:
            raise RequestError(f"{self.name} has no {scale} preset: choose --scale {' or '.join(self.scales)}")
        return preset

    def difference(self, scale: Scale) -> str:
        """What takes the place of the paper's data and networks at this scale, in a sentence; empty where nothing."""
        differs = {"laptop": self.stand_in, "desktop": self.reduced}.get(scale)
        return f"{scale.capitalize()} preset: {differs}." if differs else ""

    def grid_of(self, scale: Scale) -> Grid:
        own = {"laptop": None, "desktop": self.desktop_grid, "paper": self.paper_grid}[scale]
        return self.grid if own is None else own

    def minutes_at(self, scale: Scale) -> float | None:
        """The minutes that the grid takes on two cores, where that was measured."""
        return {"laptop": self.minutes, "desktop": self.desktop_minutes, "paper": None}[scale]

    def configs(self, scale: Scale, settings: Mapping[str, Any] = {}) -> list[C]:
        """The trials that make the figure at this scale, in grid order; with other `settings`, those at them.

        A `seed` is the first of the grid's seeds. Raises `RequestError` for other settings that the grid sets.
        """
        for name in settings:
            if name in self.varied(scale) and name != "seed":
                raise RequestError(f"{name} is set by the grid of {self.name}: choose another setting")
            if name == "control":
                raise RequestError("control cannot be changed here: reproduce --controls runs a figure's controls")
        base = self.preset(scale).but(**settings)
        configs = base.each(expand(self.grid_of(scale)))
        return seeded_from(base.seed, configs) if "seed" in settings else configs

    def small_configs(self) -> list[C]:
        """The trials of the laptop grid at the small sizes, with two seeds, or as many as a claim needs above three."""
        return self.laptop.each(expand(self._small_grid()))

    def _small_grid(self) -> Grid:
        needed = max([SMALL_SEEDS, *(claim.seeds for claim in self.claims if claim.seeds > SEEDS)])
        grid = {axis: values[:needed] if axis == "seed" else values for axis, values in self.grid.items()}
        grid |= {axis: self.small[axis] for axis in grid if axis in self.small}
        sizes = {name: [value] for name, value in self.small.items() if isinstance(name, str) and name not in grid}
        return sizes | grid

    def varied(self, scale: Scale) -> list[str]:
        """The fields that the figure's grid varies."""
        return [name for key in self.grid_of(scale) for name in ((key,) if isinstance(key, str) else key)]

    def grid_as_text(self, scale: Scale) -> dict[str, list[Any]]:
        """The grid with fields that vary together joined by `+`, as JSON and pages want it."""
        return {"+".join([k] if isinstance(k, str) else k): list(v) for k, v in self.grid_of(scale).items()}

    @overload
    def variant(self, name: str, *, title: str, laptop: D, **changes: Any) -> "Experiment[D]": ...
    @overload
    def variant(self, name: str, *, title: str, **changes: Any) -> "Experiment[C]": ...
    def variant(self, name: str, *, title: str, **changes: Any) -> "Experiment[Any]":
        """Another figure of the same system: this one with other values of its settings, or other parts of its own.

        `changes` are `figures`, `published` and `part`, which are not inherited; other fields of an experiment (`grid`,
        `minutes`, `laptop`, ...); or settings that every preset gets. The desktop preset is not inherited.
        Trial, cost and drawing are those of this experiment, also where they are declared later, until the variant
        declares its own; claims are not. Raises ValueError for what is neither a field nor a setting.
        """
        parts = {part.name for part in fields(Experiment)} - {"name", "claims", "variants"}
        settings = {key: value for key, value in changes.items() if key in type(self.laptop).model_fields}
        if unknown := set(changes) - parts - set(settings):
            raise ValueError(f"{name}: neither a part of an experiment nor a setting: {', '.join(sorted(unknown))}")
        given = {key: value for key, value in changes.items() if key not in settings}
        inherited = {key: getattr(self, key) for key in (*INHERITED, *HANDED_DOWN)}
        scales = [scale for scale in SCALES if scale != "desktop" or given.get(scale) is not None]
        presets: dict[str, Any] = {at: given.get(at, getattr(self, at)).but(**settings) for at in scales}
        made: dict[str, Any] = {"name": f"{self.system}/{name}", "title": title}
        self.variants.append(Experiment(**(inherited | given | presets | made)))
        return self.variants[-1]

    def trial(self, function: "Callable[[C, Recorder], None]") -> "Callable[[C, Recorder], None]":
        """Decorator: `function(config, recorder)` is one run of this experiment."""
        self._hand_down("run_trial", function)
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
        kind: Kind = "claim",
        seeds: int = SEEDS,
        controls: Sequence[str] | None = None,
        within: tuple[float, float] = (-math.inf, math.inf),
        about: About = "mean",
        least: float | Mapping[str, float] | None = None,
        also: "Sequence[Experiment]" = (),
    ) -> Callable[[Measure], Measure]:
        """Decorator: `function(results of one seed)` measures this claim, here and of the figures in `also`.

        `where` is the figure unless given. What is known to fail stands in `known.toml` beside the function's file. See
        `Claim`. Raises ValueError for a second claim of that id, and as `Claim` does.
        """

        def add(function: Measure) -> Measure:
            folder = known.folder_of(function, self.system)
            for figure in (self, *also):
                if any(claim.id == id for claim in figure.claims):
                    raise ValueError(f"{figure.name} has two claims called {id}")
                claim = Claim(
                    id=id,
                    says=says,
                    measure=function,
                    expect=expect,
                    paper=paper,
                    where=where or figure.figure,
                    origin=origin,
                    kind=kind,
                    seeds=seeds,
                    controls=figure._controls(controls, kind),
                    within=within,
                    about=about,
                    least=least,
                    recorded=partial(known.known, folder, figure.name, id),
                    folder=folder,
                )
                figure.claims.append(claim)
            return function

        return add

    def _controls(self, named: Sequence[str] | None, kind: Kind) -> tuple[str, ...]:
        possible = controls_of(self.laptop)
        own = possible if self.controls is None else self.controls
        controls = tuple(named) if named is not None else own if kind == "claim" else ()
        if unknown := set(controls) - set(possible):
            raise ValueError(f"{self.name} cannot be run under {', '.join(sorted(unknown))}")
        return controls

    def controlled(self, scale: Scale, settings: Mapping[str, Any] = {}) -> list[C]:
        """The figure's trials under each control that one of its claims names."""
        configs = self.configs(scale, settings)
        return [config.but(control=control) for control in self.named_controls for config in configs]

    @property
    def named_controls(self) -> list[str]:
        """The controls that its claims name."""
        return list(dict.fromkeys(control for claim in self.claims for control in claim.controls))

    def draw(
        self, rows: int = 1, cols: int = 1, size: tuple[float, float] = (7.0, 4.0)
    ) -> Callable[[Callable[["Results", Any], None]], Callable[["Results", Any], None]]:
        """Decorator: `function(results, axes)` draws the figure on a (rows, cols) array of matplotlib axes."""

        def keep(function: Callable[["Results", Any], None]) -> Callable[["Results", Any], None]:
            self._hand_down("drawing", Drawing(function, rows, cols, size))
            return function

        return keep

    def cost(self, function: "Callable[[C], Cost]") -> "Callable[[C], Cost]":
        """Decorator: `function(config)` estimates what one trial needs, whatever its seed."""
        self._hand_down("estimate", function)
        return function

    def _hand_down(self, part: str, value: Any) -> None:
        """Set a part, here and in those variants that have no other one of their own."""
        before = getattr(self, part)
        setattr(self, part, value)
        for variant in self.variants:
            if getattr(variant, part) is before:
                variant._hand_down(part, value)

    def summary(self) -> dict[str, Any]:
        """What `featurelab list --json` says of this experiment."""
        return {
            "name": self.name,
            "system": self.system,
            "figure": self.figure,
            "title": self.title,
            "scales": {
                "laptop": {"minutes": self.minutes},
                **({"desktop": {"minutes": self.desktop_minutes}} if self.desktop is not None else {}),
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
            "figures": list(self.figures),
            "published": dict(self.published),
            "fields": [{"name": n, "value": getattr(preset, n), "description": f.description or ""} for n, f in fields],
            "config": preset.model_dump(mode="json"),
            "grid": self.grid_as_text(scale),
            "sweep_axes": {name: str(axis) for name, axis in self.sweep_axes.items()},
            "metric": self.metric,
            "mode": self.mode,
            "stand_in": self.stand_in,
            "reduced": self.reduced,
            "claims": [claim.describe(scale) for claim in self.claims],
        }

    def minutes_of(self, configs: Sequence[C], scale: Scale = "laptop") -> float:
        """Estimated minutes of these trials on two cores.

        The minutes of the grid at this scale, which is `laptop` or `desktop`, are scaled by what the declared cost says
        of these trials and of that grid, or by the number of trials where no cost is declared.
        """
        grid, minutes = self.configs(scale), self.minutes_at(scale) or 0.0
        if (estimate := self.estimate) is None:
            return minutes * len(configs) / len(grid)
        ours, all_of_grid = (sum(estimate(config).cpu_seconds for config in each) for each in (configs, grid))
        return minutes * ours / all_of_grid

    def gpu_hours(self, scale: Scale) -> float | None:
        """Estimated GPU-hours of the whole grid, to three digits; None where no estimate is declared."""
        if self.estimate is None:
            return None
        grid = self.grid_of(scale)
        configs = self.preset(scale).each(expand(without_seeds(grid)))
        hours = sum(self.estimate(config).gpu_hours for config in configs) * len(grid.get("seed", [None]))
        return float(f"{hours:.3g}")
