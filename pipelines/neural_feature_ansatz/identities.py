"""The identities that the other figures rest on, checked in double precision on one small network.

    AGOP = W'KW (Section 2.2)            NTK of a layer = PTK o XX' (Proposition 3)
    Wdot'Wdot = X' l PTK l X,   Wdot'K Wdot = X' l PTK^2 l X (Proposition 6)

With V = W - W_0 along the gradient flow, V'V and V'KV and their first derivatives vanish at its start, and the second
ones are 2 Wdot'Wdot and 2 Wdot'K Wdot (Proposition 5); where the PTK is proportional to a projector these correlate
perfectly (Section 3.1). The derivatives are taken of the network's own code, by forward-mode differentiation.

Besides two statements about the mean tangent kernel of a one-hidden-layer quadratic network with a ~ N(0, 1) and
W ~ N(0, 1/k) (Proposition 12), of which the second is wrong as printed: it leaves out the products of different units.
Both forms are held against a Monte Carlo average.
"""

import copy
import functools
from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Experiment, Field, Recorder, at_most, bound_level, choice, data, evaluate, learners,
    legend_below, loguniform, measures, mlp_cost, nets, theory, torch,
)


class IdentityConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="identities hold to rounding")
    n_train: int = Field(40, ge=2, description="samples")
    dim: int = Field(12, ge=5, description="input coordinates")
    width: int = Field(24, ge=2, description="units of each of the two hidden layers")
    init_scale: float = Field(1.0, gt=0, description="variance multiplier of all initial weights")
    monte_carlo: int = Field(40_000, ge=100, description="networks in the average of Proposition 12")


MEANS = ["mean_ptk", "mean_ptk_squared_printed", "mean_ptk_squared_corrected"]
EXACT = ["agop", "ntk", "first_derivative", "second_derivative", "identity_kernel", "scale_invariance", "free_traces"]
DYNAMICS = [f"{part}_{order}" for part in ("nfm", "agop") for order in ("start", "slope", "curvature")]
PROJECTOR = ["is_projector", "projector"]
PRESET = IdentityConfig()

figure = Experiment(
    name="neural_feature_ansatz/identities", trains=False, figures=("Prop. 3", "Prop. 5", "Prop. 6", "Prop. 12"),
    title="Identities behind the ansatz, and a corrected one",
    caption="Relative errors. Left: exact identities. Right: Prop. 12, printed and corrected, against Monte Carlo.",
    laptop=PRESET, paper=PRESET, grid={"seed": range(6)},
    sweep_axes={"width": choice(8, 16, 24, 64), "init_scale": loguniform(1e-3, 10.0)}, metric="identity_error/agop",
    minutes=0.6, small={"n_train": 12, "dim": 6, "width": 4, "monte_carlo": 100},
)


@figure.trial
def run(config: IdentityConfig, recorder: Recorder) -> None:
    task = data.ChainMonomials(config.n_train, 1, config.dim, 5, seed=config.streams.data)
    net = nets.mlp(config.dim, config.width, 2, init_scale=config.init_scale, seed=config.streams.init)

    def errors(net, x, y):
        by_name = exact(net, x, y) | dynamics(net, x, y) | projector(config, x, y) | quadratic_mean(config, x[:12, :6])
        return {f"identity_error/{name}": error for name, error in by_name.items()}

    evaluate(learners.Measurement(net, errors), task, config, recorder)


def exact(net, x, y):
    """Relative error of every identity that holds to rounding."""
    first = measures.tangent_covariance(net, x, layers=["0"])["0"]
    J = measures.tangent_features(net, x, layers=["0"])["0"][:, 0]
    P, lX = J @ J.T, y * x
    Wdot = -J.T @ lX
    K = J.T @ J
    label_trace = theory.neural_feature_ansatz.quadratic_correlation(x, y[:, 0], torch.eye(x.shape[1]).to(x))
    free = theory.neural_feature_ansatz.free_probability_prediction(x, y[:, 0], [1.0, 1.0, 1.0, 1.0])
    larger = copy.deepcopy(net)
    larger.load_state_dict({name: 3.0 * value for name, value in net.state_dict().items()})
    scaled = measures.tangent_covariance(larger, x, layers=["0"])["0"]
    return {
        "agop": relative(measures.agop(net, x), first.W.T @ first.K @ first.W),
        "ntk": relative(measures.layer_ntk(net, x)["0"], P * (x @ x.T)),
        "first_derivative": relative(Wdot.T @ Wdot, lX.T @ P @ lX),
        "second_derivative": relative(Wdot.T @ K @ Wdot, lX.T @ P @ P @ lX),
        "identity_kernel": abs(measures.nfa(first.W, 2.0 * torch.eye(len(first.W)).to(x)).item() - 1),
        "scale_invariance": abs((measures.nfa(scaled.W, scaled.K) - measures.nfa(first.W, first.K)).item()),
        "free_traces": abs((label_trace - free).item()),
    }


def dynamics(net, x, y):
    """Proposition 5 by differentiating V'V and V'KV twice along the gradient flow of the first layer and all others.

    Values and slopes, which vanish, are relative to the curvature. A flow is given to second order by its velocity and
    its acceleration, which is the velocity's derivative along itself.
    """
    weights = [layer.weight.detach() for layer in net.layers]
    velocity = functools.partial(descent, net, x, y)
    speed, acceleration = torch.func.jvp(velocity, (weights,), (velocity(weights),))[:2]
    time = torch.zeros((), dtype=x.dtype, device=x.device)

    def matrices(t):
        W, *others = (w + t * v + t**2 / 2 * a for w, v, a in zip(weights, speed, acceleration, strict=True))
        J, V = written_out(x @ W.T, others), W - weights[0]
        return V.T @ V, V.T @ (J.T @ J / len(x)) @ V

    def slopes(t):
        return torch.func.jvp(matrices, (t,), (torch.ones_like(t),))

    (values, first_order), (_, second_order) = torch.func.jvp(slopes, (time,), (torch.ones_like(time),))[:2]
    K = measures.tangent_covariance(net, x, layers=["0"])["0"].K
    expected = 2 * speed[0].T @ speed[0], 2 * speed[0].T @ K @ speed[0]
    errors = []
    for value, slope, curvature, right in zip(values, first_order, second_order, expected, strict=True):
        errors += [relative(value + right, right), relative(slope + right, right), relative(curvature, right)]
    return dict(zip(DYNAMICS, errors, strict=True))


def descent(net, x, y, weights):
    """Minus the gradient of the mean squared error by each layer's weights."""

    def loss(at):
        named = {f"layers.{layer}.weight": w for layer, w in enumerate(at)}
        return (torch.func.functional_call(net, named, (x,)) - y).square().mean()

    return [-gradient for gradient in torch.func.grad(loss)(weights)]


def written_out(h, others):
    """df/dh of a bias-free ReLU network at the first pre-activations h, written out: (n, width)."""
    slopes = []
    for W in others:
        slopes.append((h > 0).to(h))
        h = torch.relu(h) @ W.T
    J = torch.ones_like(h)
    for W, slope in zip(reversed(others), reversed(slopes), strict=True):
        J = (J @ W) * slope
    return J


def projector(config: IdentityConfig, x, y, groups=4):
    """Section 3.1 of a network whose PTK is a multiple of a projector, and K not of the identity.

    Each group of samples lies on an axis of its own and reaches two units alone, whose readout weights are (cos, sin)
    of some angle: the tangent features are the same within a group, of length 1, and orthogonal between groups.
    """
    n = len(x) // groups * groups
    group = torch.arange(n) % groups
    inputs = x[:n, :1].abs() * torch.eye(groups).to(x)[group]
    net = nets.mlp(groups, 2 * groups, 1, seed=config.streams.init).to(x)
    W, readout = weights = [weight.detach() for weight in net.parameters()]  # share their memory with the network
    reached = torch.eye(groups).to(x).repeat_interleave(2, dim=0)
    W.copy_(W.abs() * (2 * reached - 1))
    readout.copy_(torch.stack([W[::2, 0].cos(), W[::2, 0].sin()], dim=1).reshape(1, -1))
    Wdot, _ = descent(net, inputs, y[:n], weights)
    J = measures.tangent_features(net, inputs, layers=["0"])["0"][:, 0]
    P = J @ J.T * groups / n
    return {"is_projector": relative(P @ P, P), "projector": abs(measures.nfa(Wdot, J.T @ J).item() - 1)}


def quadratic_mean(config: IdentityConfig, x):
    """Relative errors of Proposition 12 on E[PTK] and E[PTK^2], the latter as printed and corrected."""
    k, n = 10, len(x)
    chance = torch.Generator().manual_seed(config.streams.order)
    mean, mean_square = torch.zeros(n, n).to(x), torch.zeros(n, n).to(x)
    for done in range(0, config.monte_carlo, 2000):
        size = min(2000, config.monte_carlo - done)
        W = torch.randn(size, k, x.shape[1], generator=chance, dtype=torch.float64).to(x) / k**0.5
        a = torch.randn(size, 1, k, generator=chance, dtype=torch.float64).to(x)
        J = a * (x @ W.mT)
        P = J @ J.mT
        mean += P.sum(0)
        mean_square += (P @ P).sum(0)
    mean, mean_square = mean / config.monte_carlo, mean_square / config.monte_carlo
    S = x @ x.T
    printed = 3 * (S.trace() * S + 2 * S @ S)
    corrected = 3 / k * S.trace() * S + (1 + 5 / k) * S @ S
    pairs = [(mean, S), (printed, mean_square), (corrected, mean_square)]
    return {name: relative(*pair) for name, pair in zip(MEANS, pairs, strict=True)}


def relative(measured, expected):
    return (torch.linalg.norm(measured - expected) / torch.linalg.norm(expected)).item()


@figure.cost
def cost(config: IdentityConfig):
    return mlp_cost(dim=config.dim, width=config.width, hidden=2, outputs=1, n_train=config.n_train, steps=1,
        measures=10)


@figure.claim("c35_identities_hold", says="every exact identity holds to rounding (largest relative error)",
    paper="exact", where="Section 2.2, Props. 3 and 6", kind="identity", expect=at_most(1e-10))
def identities(runs):
    return max(runs.final(f"identity_error/{name}") for name in EXACT)


@figure.claim("prop5_centred_dynamics", says="at the start of gradient flow V'V, V'KV and their slopes vanish, and "
    "their second derivatives are 2 Wdot'Wdot and 2 Wdot'K Wdot (largest relative error)", paper="exact",
    where="Prop. 5", kind="identity", expect=at_most(1e-10))
def centred_dynamics(runs):
    return max(runs.final(f"identity_error/{name}") for name in DYNAMICS)


@figure.claim("projector_correlates_perfectly",
    says="where the PTK is a multiple of a projector, Wdot'Wdot and Wdot'K Wdot correlate perfectly (error of both)",
    paper="perfectly correlated", where="Section 3.1", kind="identity", expect=at_most(1e-10))
def projected(runs):
    return max(runs.final(f"identity_error/{name}") for name in PROJECTOR)


@figure.claim("prop12_mean", says="E[PTK] = XX' for the quadratic network (relative error of 40,000 draws)",
    paper="exact", where="Prop. 12", kind="identity", expect=at_most(0.03))
def mean(runs):
    return runs.final("identity_error/mean_ptk")


@figure.claim("prop12_square_printed", says="E[PTK^2] = 3 (tr(X'X) XX' + 2 (XX')^2), as printed (relative error)",
    paper="exact", where="Prop. 12", kind="identity", expect=at_most(0.1))
def printed(runs):
    return runs.final("identity_error/mean_ptk_squared_printed")


@figure.claim("prop12_square_corrected", says="E[PTK^2] = (3/k) tr(X'X) XX' + (1 + 5/k) (XX')^2 (relative error)",
    origin="corrected", where="Prop. 12", kind="identity", expect=at_most(0.1))
def corrected(runs):
    return runs.final("identity_error/mean_ptk_squared_corrected")


@figure.draw(cols=2, size=(9, 4))
def panels(runs, axes):
    groups = [[*EXACT, *DYNAMICS, *PROJECTOR], MEANS]
    for axis, names, limit, colour in zip(axes[0], groups, [1e-10, 0.1], CATEGORIES, strict=False):
        values = [runs.final(f"identity_error/{name}") for name in names]
        axis.barh([name.replace("_", " ") for name in names], [max(v, 1e-17) for v in values], color=colour)
        bound_level(axis, limit, f"tolerance {limit:g}", vertical=True)
        axis.set(xscale="log", xlabel="relative error")
        axis.invert_yaxis()
        legend_below(axis)
