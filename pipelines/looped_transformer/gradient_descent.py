"""Theorem 8.14. T loops of the linear block are T steps of gradient descent on the least squares of the prompt.

    -q_t = alpha theta_t,    theta_t = theta_(t-1) - eta_(t-1) (H theta_(t-1) - b),    H = X^T X, b = X^T y

for any start theta_0 = -q_0 / alpha, any alpha and any schedule, here all random, with noisy labels, and also with
fewer examples than coordinates. Three blocks that are wrong in one detail are compared.
"""

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, at_least, at_most, bound_level, choice, data, evaluate, learners,
    legend_beside, nets, np, randint, theory,
)
from featurelab.pipelines.looped_transformer.prompts import MUTATIONS, CheckedConfig, block, cost, drawn, parts, wrong

FORMS = ("attention", "rows", "gram", "spectral")
NAMES = {"itself": "query sees itself", "drifting": "P = I", "causal": "causal mask"}


class DescentConfig(CheckedConfig):
    query_scale: float = Field(1.0, ge=0, description="standard deviation of the query's start q_0")
    noise: float = Field(0.5, ge=0, description="standard deviation of the noise on labels")


PRESET = DescentConfig(loops=30, prompts=64)
SIZES = [(20, 4), (30, 6), (40, 8), (5, 8)]

figure = Experiment(
    name="looped_transformer/gradient_descent", trains=False, figures=("Thm. 8.14",),
    title="Loops are steps of gradient descent",
    caption="Largest distance over prompts (solid), and of blocks that are wrong in one detail in the median prompt.",
    laptop=PRESET, paper=PRESET.but(prompts=1000), grid={("n_train", "dim"): SIZES, "seed": range(6)},
    sweep_axes={"n_train": choice(5, 20, 40, 80), "dim": choice(2, 4, 8), "loops": randint(2, 40)},
    metric="difference/attention", minutes=0.1, small={"prompts": 10, "loops": 6},
)


@figure.trial
def run(config: DescentConfig, recorder: Recorder) -> None:
    task = drawn(config, query=config.query_scale, alpha=None, noise=config.noise)
    steps = data.stream(config.streams.init, "steps").uniform(0.2, 1.8, config.loops).tolist()

    def distances(net, Z, theta):
        X, y, q, alpha = parts(Z)
        path = alpha[:, None] * theory.looped_transformer.least_squares_path(X, y, -q / alpha[:, None], net.rates(Z))
        size = alpha.abs().clamp(min=1)

        def off(net, form):
            far = (net.trajectory(Z, form) - path).abs().amax(-1) / size
            return far.nan_to_num(nan=1e9, posinf=1e9).clamp(max=1e9)  # some blocks of wrong weights diverge

        exact = not any(wrong(config.control, config.dim))
        first = off(net, "attention")
        values = {"difference/attention": first.max().item()}
        for form in FORMS[1:] if exact else ():
            values[f"difference/{form}"] = off(net, form).max().item()
        curves = {"stated": first.amax(1)}
        for mutation in MUTATIONS:
            other = nets.LinearLoopedTransformer(config.dim, config.loops, step=steps, **wrong(mutation, config.dim))
            curves[mutation] = off(other.to(Z), "attention").cpu().median(1).values  # on a GPU not deterministic
            values[f"difference/{mutation}"] = curves[mutation].max().item()
        moved = [max((Zt[:, :-1] - Z[:, :-1]).abs().max(), (Zt[:, -1, -1] - alpha).abs().max()) for Zt in net.layers(Z)]
        recorder.array("off", **{name: curve.cpu().numpy() for name, curve in curves.items()})
        return values | {"moved": float(max(moved))}

    evaluate(learners.Measurement(block(config, step=steps, form="attention"), distances), task, config, recorder)


figure.cost(cost)


def sizes(runs):
    rows = sorted({tuple(row) for row in runs.trials[["n_train", "dim"]].to_numpy()})
    return [{"n_train": n, "dim": d} for n, d in rows]


def largest(runs, metric):
    return max(runs.final(metric, **size) for size in sizes(runs))


@figure.claim("c01_loops_are_gradient_descent", paper="equal", kind="identity", controls=MUTATIONS,
    says="After every loop the block's answer is alpha theta_t of gradient descent (largest distance over max(1, "
    "|alpha|))", expect=at_most(1e-10))
def equal(runs):
    return largest(runs, "difference/attention")


@figure.claim("c01b_other_forms_agree", origin="ours", kind="identity",
    says="The answer is alpha theta_t also if only the query is moved, through the Gram matrix, and in closed form "
    "(largest distances)", expect=dict.fromkeys(FORMS[1:], at_most(1e-10)))
def forms(runs):
    return {form: largest(runs, f"difference/{form}") for form in FORMS[1:]}


@figure.claim("c01c_nothing_else_moves", paper="only the query is updated", kind="identity",
    controls=("drifting", "causal"),
    says="Loops change only the query: examples, labels and alpha keep their bits (distance)", expect=at_most(0))
def still(runs):
    return largest(runs, "moved")


@figure.claim("c01d_one_wrong_detail_breaks_it", origin="ours",
    says="A block that is wrong in one detail is another algorithm (distance in the median prompt, least over sizes)",
    expect=dict.fromkeys(MUTATIONS, at_least(0.01)), controls=())
def broken(runs):
    return {m: min(runs.final(f"difference/{m}", **size) for size in sizes(runs)) for m in MUTATIONS}


@figure.draw(size=(7, 4))
def panel(runs, axes):
    axis = axes[0, 0]
    by_seed = runs.where(n_train=20, dim=4).arrays("off")
    for name, colour in zip(("stated", *MUTATIONS), CATEGORIES, strict=False):
        rows = np.array([arrays[name] for arrays in by_seed]).clip(1e-17, 1e3)
        label = NAMES.get(name, "the paper's block")
        axis.plot(np.exp(np.log(rows).mean(0)), color=colour, label=label, marker=".", markersize=4)
    bound_level(axis, 1e-10, "tolerance")
    axis.set(yscale="log", xlabel="loops t", ylabel="|TF$_t$ - αθ$_t$| / max(1, |α|)", ylim=(1e-17, 1e3))
    axis.set_title("n = 20, d = 4; random schedule, start and α")
    legend_beside(axis)
