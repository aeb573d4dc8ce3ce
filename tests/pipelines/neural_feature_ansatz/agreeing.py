"""Made-up measurements of every figure: some with which every claim holds, some with which every one fails.

Each function maps a trial's config to its metrics: one value, or one each at step 0, which may lack, 10 and the end.
"""

import functools

import numpy as np
from madeup import results

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.neural_feature_ansatz.identities import DYNAMICS, EXACT, PROJECTOR
from featurelab.pipelines.neural_feature_ansatz.on_images import LAYERS
from featurelab.pipelines.neural_feature_ansatz.street_numbers import RUNS

EXPERIMENTS = {e.name.partition("/")[2]: e for e in registry.experiments("neural_feature_ansatz")}
SCALES = (1.0, 0.1, 0.01, 0.001)


@functools.cache
def sweep(name, scale="laptop", agree=True) -> Results:
    """The figure's grid with three seeds, measured as said below."""
    return results(
        [config.model_dump() for config in EXPERIMENTS[name].configs(scale) if config.seed < 3],
        lambda config: {metric: curve(value) for metric, value in MEASURED[name](config, agree).items()},
        arrays=lambda config, array: {part: np.eye(8) for part in ("nfm", "agop", "egop", "control")},
    )


def curve(value):
    """The metric by step: two values are those at step 10 and at the end."""
    values = value if isinstance(value, tuple) else (value, value)
    return dict(zip((0, 10, 800)[-len(values) :], values, strict=True))


def by_scale(config, *values):
    """The value for the config's initialisation scale, from the largest to the smallest."""
    return dict(zip(SCALES, values, strict=True))[config["init_scale"]]


def init_scale(config, agree):
    first = by_scale(config, 0.5, 0.7, 0.85, 0.95) if agree else by_scale(config, 0.8, 0.7, 0.6, 0.5)
    second = by_scale(config, 0.35, 0.4, 0.45, 0.5) if agree else 0.2
    start = 0.1 if agree else 0.9
    s = config["init_scale"]
    return {
        "nfa/0": (start, *[first] * 2),
        "cnfa/0": (0.9, 0.95) if agree else (1 - s, 1 - s),
        "nfa/1": (start, *[second] * 2),
        "cnfa/1": 0.95 if agree else second,
        "loss/test": s if agree else 2 - s,
        "loss/train": s,
    }


def random_kernel(config, agree):
    own, control, dispersion, quality = (0.93, 0.53, 5.9, 0.9) if agree else (0.5, 0.8, 1.0, 0.3)
    return {
        "nfa/0": own,
        "nfa_random_kernel/0": control,
        "ptk_dispersion/0": dispersion,
        "feature_quality/nfm": quality,
        "feature_quality/agop": quality,
    }


def alignment_reversal(config, agree):
    observed = 0.6 + 0.4 * config["balance"] if agree else 1 - 0.4 * config["balance"]
    errors = {"seeds": 0.01, "theory": 0.03, "own": 0.005} if agree else dict.fromkeys(("seeds", "theory", "own"), 0.1)
    predicted = {f"derivative_correlation/predicted_{r}": observed - error for r, error in errors.items()}
    return {"derivative_correlation/observed": observed, **predicted}


def speed_limit(config, agree):
    gd = config["optimizer"] == "gd"
    if agree:
        share = by_scale(config, 0.01, 0.1, 0.5, 0.9) if gd else 0.95
        return {"centered_ratio/0": share, "nfa/0": 0.6 if gd else 0.95, "cnfa/0": 0.94}
    share = by_scale(config, 0.9, 0.8, 0.5, 0.1) if gd else 0.2
    return {"centered_ratio/0": share, "nfa/0": 0.5, "cnfa/0": 0.9}


def large_init_features(config, agree):
    better = (config["optimizer"] == "slo") == agree
    quality = 0.9 if better else 0.3
    metrics = dict.fromkeys(["feature_quality/nfm", "feature_quality/agop", "nfa/0"], quality)
    return metrics | {"loss/test": 0.4 if better else 0.8}


def features_by_init_scale(config, agree):
    falling, level = by_scale(config, 0.3, 0.5, 0.7, 0.9), 0.9
    moves = (config["optimizer"] == "gd") == agree
    return {"feature_quality/nfm": falling if moves else level, "feature_quality/agop": level if agree else falling}


def double_centered(config, agree):
    small = config["init_scale"] <= 0.1
    ratio = ((0.05, 0.5) if small else (0.01, 0.08)) if agree else ((0.3, 0.1) if small else (0.3, 0.9))
    return {f"double_centered_ratio/{layer}": ratio for layer in (0, 1)}


def ptk_centered(config, agree):
    return {f"ptk_centered_nfa/{layer}": (0.6, 0.3) if agree else (0.3, 0.6) for layer in (0, 1)}


def mean_kernel(config, agree):
    observed = 0.5 if agree and 0.5 <= config["decay"] <= 1.5 else 0.9
    wide = config["width"] > 128
    error = (0.01 if wide else 0.03) if agree else (0.2 if wide else 0.1)
    kinds = {f"derivative_correlation/{kind}": observed for kind in ("observed", "observed_one")}
    return {**kinds, "derivative_correlation/mean_kernel": observed - error}


def adaptive_speed(config, agree):
    better = (config["optimizer"] == "adaptive_slo") == agree
    scores = [0.8, 0.82, 0.84] if better else [0.3, 0.5, 0.6]
    return {f"nfa/{layer}": score for layer, score in enumerate(scores)} | {
        "loss/test": 0.3 if better else 0.6,
        "loss/train": 0.2,
    }


def face_features(config, agree):
    own, control = (0.91, 0.04) if agree else (0.5, 0.5)
    return {"diagonal_pearson/agop": own, "diagonal_pearson/random_kernel": control}


def street_numbers(config, agree):
    rank = [(run[0], run[2]) for run in RUNS].index((config["optimizer"], config["speeds"]))
    value = 0.5 + (0.1 if agree else -0.1) * rank
    return dict.fromkeys(["centered_ratio/0", "nfa/0", "cnfa/0", "diagonal_pearson/agop"], value)


def on_images(config, agree):
    small, values = config["init_scale"] < 1, {"loss/train": 0.1}
    for layer in LAYERS[config["net"]]:
        if agree:
            measured = {"nfa": (0.5, 0.9, 0.9 if small else 0.7), "cnfa": (0.9, 0.9)}
        else:
            measured = {"nfa": (0.9, 0.5, 0.5 if small else 0.6), "cnfa": (0.2, 0.2) if small else (0.5, 0.5)}
        measured |= dict.fromkeys(("nfa_random_kernel", "cnfa_random_kernel"), 0.4 if agree else 0.95)
        values |= {f"{name}/{layer}": value for name, value in measured.items()}
    return values


def identities(config, agree):
    exact, means = [*EXACT, *DYNAMICS, *PROJECTOR], ["mean_ptk", "mean_ptk_squared_printed"]
    errors = dict.fromkeys(exact, 1e-14) | dict.fromkeys([*means, "mean_ptk_squared_corrected"], 0.01)
    return {f"identity_error/{name}": error if agree else 1.0 for name, error in errors.items()}


MEASURED = {
    "init_scale": init_scale,
    "init_scale_decay_1": init_scale,
    "init_scale_decay_2": init_scale,
    "random_kernel": random_kernel,
    "alignment_reversal": alignment_reversal,
    "speed_limit": speed_limit,
    "large_init_features": large_init_features,
    "features_by_init_scale": features_by_init_scale,
    "double_centered": double_centered,
    "ptk_centered": ptk_centered,
    "mean_kernel_quadratic": mean_kernel,
    "mean_kernel_relu": mean_kernel,
    "adaptive_speed": adaptive_speed,
    "face_features": face_features,
    "street_numbers": street_numbers,
    "mlp_on_images": on_images,
    "cnn_on_images": on_images,
    "identities": identities,
}
