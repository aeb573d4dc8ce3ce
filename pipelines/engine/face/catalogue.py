"""The experiments, and what can be done with one: run it, sweep it, reproduce its figure."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from featurelab.pipelines.engine.errors import RunError, unknown
from featurelab.pipelines.engine.experiment.axes import Axis, Drawn, Listed, parse_axis
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.catalogue.papers import paper
from featurelab.pipelines.engine.experiment.config import Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.needs import require_data
from featurelab.pipelines.engine.face.maps import Map
from featurelab.pipelines.engine.face.run import Run, read_run
from featurelab.pipelines.engine.face.show import page
from featurelab.pipelines.engine.face.sweeps import Reproduction, Sweep
from featurelab.pipelines.engine.libraries import pd
from featurelab.pipelines.engine.trial.home import connect, outbox_folder
from featurelab.pipelines.engine.trial.record import Save

Domain = str | Drawn | Listed | Sequence[Any]  # of an axis: "loguniform(1e-4,1e-1)", or a list of values
ENGINE = "featurelab.pipelines.engine"
MEANWHILE = (f"{ENGINE}.sweep.begin", f"{ENGINE}.verdict.reproduce", "matplotlib.figure")  # imported while Ray starts


def experiments(system: str | None = None, *, figure: str | None = None) -> pd.DataFrame:
    """Return a table of the experiments: name, figure, title, paper, minutes, claims (how many).

    Args:
        system: one system only; by default all.
        figure: only what makes the figure, table or theorem of this number, such as "9.5" or "Table 1".

    Raises `RequestError` for an unknown system, or a number that no experiment makes.
    """
    listed = registry.experiments(system) if figure is None else registry.with_figure(figure, system)
    rows = [
        {
            "name": one.name,
            "figure": one.figure,
            "title": one.title,
            "paper": " ".join(paper(one).partition("\n\n")[0].split()),
            "minutes": one.minutes,
            "claims": len(one.claims),
        }
        for one in listed
    ]
    return pd.DataFrame(rows)


def experiment(name: str) -> "ExperimentPage":
    """Return the experiment of this name, or the one that makes the figure of this number, such as "Fig. 9.5".

    Raises `RequestError` with the nearest name that exists.
    """
    return ExperimentPage(registry.find(name))


def map(experiment_name: str, /, **options: Any) -> Map:
    """Map where the claims of the experiment of this name hold; the options are those of `ExperimentPage.map`.

    Raises `RequestError` for a name that does not exist, and as `ExperimentPage.map`.
    """
    return experiment(experiment_name).map(**options)


@dataclass(frozen=True, eq=False)
class ExperimentPage:
    """An experiment: what it is, and what can be done with it."""

    declared: Experiment

    @property
    def name(self) -> str:
        """Its name, system/experiment."""
        return self.declared.name

    @property
    def settings(self) -> pd.DataFrame:
        """Its settings: name, value at laptop scale, value at paper scale, description."""
        laptop, paper_scale = self.declared.laptop, self.declared.paper
        rows = [
            [name, getattr(laptop, name), getattr(paper_scale, name), field.description or ""]
            for name, field in type(laptop).model_fields.items()
        ]
        return pd.DataFrame(rows, columns=["name", "laptop", "paper", "description"])

    @property
    def claims(self) -> pd.DataFrame:
        """Its claims: id, statement, what is expected, the paper's value, the documented verdict and its reason."""
        return pd.DataFrame(self.declared.describe("laptop")["claims"])

    @property
    def source(self) -> Path:
        """The file that declares its trial. Raises TypeError for an experiment without a trial."""
        if self.declared.run_trial is None:
            raise TypeError(f"{self.name} declares no trial")
        return Path(inspect.getfile(inspect.unwrap(self.declared.run_trial)))

    def run(self, *, scale: Scale = "laptop", save: Save = "", **settings: Any) -> Run:
        """Run one trial in this process, record it, and return it; `settings` differ from the preset of `scale`.

        With `save`, the run stores the weights of each fit: "last", or "best" by the experiment's metric.

        A trial that diverges has the status `diverged`. Raises `RequestError` for an unknown setting, a value that it
        does not accept and missing data; `RunError` if the trial fails; `StoreError` if the store cannot be used.
        """
        config = self.declared.preset(scale).but(**settings)
        require_data(self.declared, [config])
        outbox, store = outbox_folder(), connect()

        # imports torch, for which nobody should wait whose store does not answer
        from featurelab.pipelines.engine.sweep.descriptions import describe
        from featurelab.pipelines.engine.trial.run import run_trial

        describe(store, self.declared)
        outcome = run_trial(self.declared, config, store, scale=scale, outbox=outbox, save=save)
        if outcome.status == "failed":
            raise RunError(f"failed: {outcome.reason}, run {outcome.run_id}")
        return read_run(outcome.run_id, store)

    def sweep(
        self,
        *,
        over: Mapping[str, Domain] | None = None,
        samples: int | None = None,
        search: Literal["random", "optuna"] = "random",
        metric: str | Sequence[str] = "",
        mode: str | Sequence[str] | None = None,
        scheduler: Literal["fifo", "asha"] = "fifo",
        cpus_per_trial: float | None = None,
        gpus_per_trial: float = 0,
        workers_per_trial: int | None = None,
        trial_timeout: float | None = None,
        save: Save = "",
        address: str | None = None,
        name: str = "",
        scale: Scale = "laptop",
        **settings: Any,
    ) -> Sweep:
        """Run many trials on Ray, and return them when the last has ended; the options are those of `featurelab sweep`.

        Args:
            over: axes by setting: a list of values, or a law such as "loguniform(1e-4,1e-1)". By default the axes that
                the experiment declares.
            samples: random draws for each listed point: 1, or without `over` 16. With optuna the number of trials: 16.
            search: "optuna" draws trials one by one, and learns from those before; it needs the extra `search`.
            metric, mode: what ranks the trials; by default the experiment's own. With optuna also several metrics, and
                a mode ("min" or "max") for each or for all.
            settings: values that all trials have instead of the preset's.

        Ray stops at the end, unless it was running before. Raises `RequestError` for a wrong request, before anything
        is written; `RunError` if Ray fails; `StoreError` if the store cannot be used.
        """
        from featurelab.pipelines.engine.sweep.plan import plan_over
        from featurelab.pipelines.engine.sweep.ray.cluster import connected
        from featurelab.pipelines.engine.sweep.resources import Resources
        from featurelab.pipelines.engine.sweep.search.goals import parse_goals

        declared, outbox = self.declared, outbox_folder()
        resources = Resources.of_trial(cpus_per_trial, gpus_per_trial, workers_per_trial, trial_timeout)
        metrics, modes = parse_goals(metric, mode)
        names = metrics or [declared.metric]
        (first, first_mode), *others = zip(names, modes or [declared.mode] * len(names), strict=True)
        details: dict[str, Any] = {"name": name, "scheduler": scheduler, "search": search, "save": save}
        details |= {"metric": first, "mode": first_mode, "other_goals": dict(others)}
        plan = plan_over(
            declared, self._axes(over or {}), settings, samples, scale=scale, resources=resources, **details
        )
        with connected(address, MEANWHILE):
            from featurelab.pipelines.engine.sweep import begin
            from featurelab.pipelines.engine.verdict.judge import judge
            from featurelab.tracking.store.connect import resolve

            begin.prepare(resources, resolve(), address)
            store = connect()
            finished = begin.run_sweep(plan, store, outbox=outbox, address=address)
            judge(finished.sweep_run_id, store)
        of = (finished.sweep_run_id, finished.name, self.name, finished.trials)
        return Sweep(*of, first, first_mode, store, other_goals=dict(others))

    def reproduce(
        self,
        *,
        scale: Scale = "laptop",
        decide: bool = False,
        most_seeds: int | None = None,
        controls: bool = False,
        fresh: bool = False,
        save: Save = "",
        gpus_per_trial: float = 0,
        address: str | None = None,
        **settings: Any,
    ) -> Reproduction:
        """Run the grid of the figure, judge its claims and draw it; the options are those of `featurelab reproduce`.

        `settings` judge it at other settings than its own, or on fresh seeds: `seed=100` takes them from 100 on. An
        earlier reproduction that was interrupted is continued, unless `fresh`. Raises as `sweep`, and for settings that
        the figure's grid sets.
        """
        from featurelab.pipelines.engine.sweep.ray.cluster import connected
        from featurelab.pipelines.engine.sweep.resources import Resources
        from featurelab.pipelines.engine.verdict.decide import seed_limit

        declared, limit, outbox = self.declared, seed_limit(decide, most_seeds), outbox_folder()
        resources = Resources.of_trial(gpus=gpus_per_trial)
        require_data(declared, declared.configs(scale, settings))
        options: dict[str, Any] = {"fresh": fresh, "most_seeds": limit, "controls": controls, "save": save}
        options |= {"resources": resources, "settings": settings}
        with connected(address, MEANWHILE):
            from featurelab.pipelines.engine.sweep.begin import prepare
            from featurelab.pipelines.engine.verdict.reproduce import reproduce
            from featurelab.tracking.store.connect import resolve

            prepare(resources, resolve(), address)
            store = connect()
            judged = reproduce([declared], scale, store, outbox=outbox, address=address, **options)[-1]
        ranking = (declared.metric, declared.mode)
        of = (judged.sweep_run_id, judged.sweep, self.name, judged.trials)
        return Reproduction(*of, *ranking, store, verdicts=judged.verdicts)

    def map(
        self,
        *,
        over: Mapping[str, str | Listed | Sequence[Any]],
        name: str = "",
        resume: str = "",
        address: str | None = None,
        scale: Scale = "laptop",
    ) -> Map:
        """Reproduce the figure in every cell of listed settings, and judge each cell, as `featurelab map` does.

        Args:
            over: values by setting, such as {"lr": [0.01, 0.1], "width": [64, 256]}; at most 100 cells.
            name: of the map, by default experiment, date and time.
            resume: the name of an interrupted map, of which what is missing is run; `over` is then ignored.

        Raises `RequestError` for settings that are not listed or that the figure's grid sets, and as `sweep`.
        """
        from featurelab.pipelines.engine.sweep.ray.cluster import connected
        from featurelab.pipelines.engine.verdict.maps import mapping

        declared, outbox = self.declared, outbox_folder()
        plan = None if resume else mapping.plan_map(declared, self._axes(over), scale, name=name)
        with connected(address, MEANWHILE):
            from featurelab.pipelines.engine.sweep import begin
            from featurelab.tracking.store.connect import resolve

            if plan is None:
                store = connect(create=False)
                ran = begin.resume_sweep(declared, resume, store, outbox=outbox, address=address, is_map=True)
            else:
                begin.prepare(plan.resources, resolve(), address)
                store = connect()
                ran = begin.run_sweep(plan, store, outbox=outbox, address=address)
            return Map(mapping.judge_map(ran.sweep_run_id, store))

    def _axes(self, over: Mapping[str, Domain]) -> dict[str, Axis]:
        fields = type(self.declared.laptop).model_fields
        for name in over:
            if name not in fields:
                raise unknown("setting", name, fields)
        return {name: _axis(domain) for name, domain in over.items()}

    def __repr__(self) -> str:
        return f"<experiment {self.name} ({self.declared.figure}): {self.declared.title}>"

    def _repr_html_(self) -> str:
        declared = self.declared
        return page(f"{self.name}: {declared.figure}. {declared.title}", self.settings) + page("Claims", self.claims)


def _axis(domain: Domain) -> Axis:
    if isinstance(domain, str):
        return parse_axis(domain)
    return domain if isinstance(domain, Drawn | Listed) else Listed(tuple(domain))
