"""Appendix K.4. How the rotations of Setup 2 are made, and a trap in the recipe.

R is the Q of the QR decomposition of I + eps M, M standard normal, with the first column's sign flipped where the
determinant is -1. "Slight to substantial" rotations come out only after the columns of Q have been multiplied by the
signs of R's diagonal: LAPACK returns a Q near -I for a matrix near I.
"""

from typing import Literal

from featurelab.pipelines import (
    Config,
    Cost,
    Experiment,
    Field,
    above,
    at_least,
    at_most,
    choice,
    data,
    evaluate,
    learners,
    nets,
    np,
    stats,
    torch,
)


class GeneratorConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="rotations are orthogonal to rounding")
    dim: int = Field(256, ge=4, description="input coordinates")
    rotations: int = Field(30, ge=3, description="rotations of the mean")
    least: float = Field(0.1, gt=0, description="eps sqrt(dim) of the slightest rotation")
    most: float = Field(10.0, gt=0, description="eps sqrt(dim) of the largest; between them logarithmic")


LAPTOP = GeneratorConfig()

figure = Experiment(
    name="alignment_elasticity/rotation_generator",
    figure="App. K.4",
    title="Rotations by QR of I + εM: how far they turn a vector",
    caption="Cosine of v and R v. Points are means over seeds, bars their range; dashed: (1 + ε²d)^(-1/2).",
    laptop=LAPTOP,
    paper=LAPTOP.but(dim=2048, rotations=300),
    grid={"seed": [0, 1, 2]},
    sweep_axes={"dim": choice(64, 128, 256)},
    metric="cosine/fixed",
    minutes=0.1,
)


@figure.trial
def run(config, recorder):
    axis = data.SubGaussianClasses(2, config.dim, "sphere", seed=config.streams.data).axis
    eps = np.logspace(np.log10(config.least), np.log10(config.most), config.rotations) / config.dim**0.5
    task = data.TensorData((axis[None], torch.ones(1, 1)), dtype=config.dtype, name="rotated_axis")
    curves: dict[str, list[float]] = {"cosine/fixed": [], "cosine/printed": []}

    def errors(_, x, y):
        found = {"orthogonality": 0.0, "determinant": 0.0, "vector": 0.0}
        turned = data.rotated(axis, eps.tolist(), seed=config.streams.data)
        for index, strength in enumerate(eps.tolist()):
            R = data.rotation(config.dim, strength, seed=config.streams.data, index=index)
            printed = data.rotation(config.dim, strength, seed=config.streams.data, index=index, fix_signs=False)
            found["orthogonality"] = max(found["orthogonality"], (R.T @ R - torch.eye(config.dim)).abs().max().item())
            found["determinant"] = max(found["determinant"], abs(torch.linalg.det(R).item() - 1))
            found["vector"] = max(found["vector"], (R @ axis - turned[index]).abs().max().item())
            curves["cosine/fixed"].append((axis @ R @ axis).item())
            curves["cosine/printed"].append((axis @ printed @ axis).item())
        return {f"rotation_error/{name}": value for name, value in found.items()}

    net = nets.two_layer(config.dim, 1, seed=config.streams.init, dtype=config.dtype)
    evaluate(learners.Measurement(net, errors), task, config, recorder)
    for index, values in enumerate(zip(*curves.values(), strict=True)):
        recorder.log(dict(zip(curves, values, strict=True)), step=index)
    recorder.array("grid", eps=eps)


@figure.cost
def cost(config):
    return Cost(config.dim, 10.0 * config.rotations * config.dim**3, 40.0 * config.dim**2)


@figure.claim(
    "c23_rotations",
    says="every R is orthogonal with determinant 1 (largest error of an entry of R'R, and of the determinant)",
    paper="a valid rotation",
    expect={"orthogonality": at_most(1e-8), "determinant": at_most(1e-8)},
)
def valid(runs):
    return {name: runs.final(f"rotation_error/{name}") for name in ("orthogonality", "determinant")}


@figure.claim(
    "c23_slight_to_substantial",
    says="with the signs of R's diagonal mended: the cosine of v and R v at the slightest rotation, and Spearman's"
    " correlation of minus the cosine with eps",
    paper="from slight to more substantial",
    origin="corrected",
    expect={"slightest": above(0.99), "Spearman": at_least(0.9)},
)
def slight(runs):
    eps, cosine = runs.arrays("grid")[0]["eps"], runs.curve("cosine/fixed")
    return {"slightest": cosine.iloc[0], "Spearman": float(stats.spearmanr(eps, -cosine).statistic)}


@figure.claim(
    "c23_as_printed",
    says="with Q as LAPACK returns it: the cosine of v and R v at the slightest rotation",
    paper="from slight to more substantial",
    expect=above(0.99),
    fails="LAPACK's reflections give R's diagonal a negative sign there, so that Q is near -I",
)
def as_printed(runs):
    return runs.curve("cosine/printed").iloc[0]


@figure.draw(size=(6.5, 4))
def panel(runs, axes):
    axis = axes[0, 0]
    eps = runs.arrays("grid")[0]["eps"]
    strength = eps * runs.values("dim")[0] ** 0.5
    for metric, label, colour in [
        ("fixed", "signs mended", "#3566a8"),
        ("printed", "as printed", "#d1672c"),
    ]:
        table = runs.curves(f"cosine/{metric}")
        mean = table.mean(axis=1)
        bars = np.array([mean - table.min(axis=1), table.max(axis=1) - mean]).clip(min=0)
        axis.errorbar(strength, mean, yerr=bars, color=colour, marker="o", markersize=3.5, capsize=2, label=label)
    axis.plot(
        strength, (1 + strength**2) ** -0.5, color="#444444", linestyle="--", linewidth=1, label="(1 + ε²d)^(-1/2)"
    )
    axis.set(xlabel="ε √d", ylabel="cosine of v and R v", xscale="log")
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
