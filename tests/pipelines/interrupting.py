"""A trial of one fit that is interrupted on purpose, and what its run holds."""

import pytest
import pytorch_lightning as pl

from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.fitting.fit import fit
from featurelab.pipelines.engine.trial.run import run_trial
from featurelab.tracking.store import query


class Cut(pl.Callback):
    """Interrupts a fit in the middle of an epoch, once."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_batch_end(self, trainer, *rest):
        if self.epoch is not None and trainer.current_epoch == self.epoch:
            epoch, self.epoch = self.epoch, None
            raise KeyboardInterrupt(epoch)

    def state_dict(self):
        return {}


class Watched:
    """A trial of one fit, interrupted once; `weights` are those after it, `epochs` those that were begun."""

    def __init__(self, build, cut_in=4):
        self.build, self.cut, self.weights, self.epochs = build, Cut(cut_in), {}, []
        self.experiment = Experiment(
            name="tests/cut",
            figures=("Fig. 0",),
            title="t",
            laptop=Config(),
            paper=Config(),
            grid={"seed": [0]},
            minutes=1,
            run_trial=self.trial,
        )

    def trial(self, config, recorder):
        recorder.log({"before": 0.5}, step=0)
        learner, task, callbacks, limits = self.build(config)
        count = pl.callbacks.LambdaCallback(
            on_train_epoch_start=lambda trainer, module: self.epochs.append(trainer.current_epoch)
        )
        trainer = fit(learner, task, config, recorder, probes=[*callbacks, count, self.cut], **limits)
        self.weights = {name: value.clone() for name, value in learner.state_dict().items()}
        self.state = trainer.callbacks[1].state_dict() if callbacks else {}
        recorder.log({"after": float(trainer.current_epoch)}, step=trainer.global_step)

    def run(self, store, outbox, **details):
        return run_trial(
            self.experiment, Config(seed=3, precision="64-true"), store, scale="laptop", outbox=outbox, **details
        )


def points(store, run_id):
    found = query.histories(store, [run_id])
    return [(row.metric, row.step, repr(row.value)) for row in found.itertuples()]


def only_run(store, known):
    """The run that is new in the store."""
    (new,) = set(query.runs(store, "tests/cut").run_id) - known
    return new


def cut_short(store, outbox, watched):
    """Run until it is interrupted, and return the run."""
    known = set(query.runs(store, "tests/cut").run_id)
    with pytest.raises(KeyboardInterrupt):
        watched.run(store, outbox)
    run_id = only_run(store, known)
    assert store.get_run(run_id).data.tags["status"] == "killed"
    return run_id
