"""The `featurelab` command, which also tells how many trials Ray Tune kept in memory at most."""

import gc
import sys
import weakref
from typing import Any

from featurelab.pipelines.engine.command.cli import main
from featurelab.pipelines.engine.sweep import conduct

kept: "weakref.WeakSet[Any]" = weakref.WeakSet()
counts = [0]
run_trials = conduct.run_trials


def counted(*arguments: Any) -> None:
    from ray.tune.experiment import Trial  # Ray reads its settings when it is imported: not before they are made

    from featurelab.pipelines.engine.sweep.ray.progress import SweepProgress

    make, start = Trial.__init__, SweepProgress.on_trial_start

    def made(trial: Trial, *args: Any, **options: Any) -> None:
        make(trial, *args, **options)
        kept.add(trial)

    def started(progress: SweepProgress, *args: Any, **options: Any) -> None:
        start(progress, *args, **options)
        if len(kept) > max(counts):  # some may be garbage
            gc.collect()
        counts.append(len(kept))

    Trial.__init__, SweepProgress.on_trial_start = made, started  # type: ignore[method-assign]
    run_trials(*arguments)


if __name__ == "__main__":
    conduct.run_trials = counted
    try:
        main()
    finally:
        print(f"of {len(counts) - 1} trials at most {max(counts)} at once", file=sys.stderr)
