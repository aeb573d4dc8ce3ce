"""A looped linear transformer: the identities of its loops, in four forms, and what breaks them."""

import numpy as np
import pytest
import torch

from featurelab.modules import data, nets, theory

DOUBLE = torch.float64


def drawn(count=5, n=24, dim=5, *, query=1.0, alpha=None, seed=0, **options):
    return data.LinearPrompts(count, n, dim, query=query, alpha=alpha, seed=seed, **options).train


def worst(a, b):
    return (a - b).abs().max().item()


def by_hand(Z, loops, eta):
    """One prompt at a time, entry by entry: the query attends to every example."""
    Z = Z.numpy().copy()
    n, d = Z.shape[0] - 1, Z.shape[1] - 1
    for _ in range(loops):
        update = np.zeros(d)
        for j in range(n):
            score = sum(Z[n, k] * Z[j, k] for k in range(d + 1))
            update += score * Z[j, :d]
        Z[n, :d] -= eta * update
    return -Z[n, :d]


def test_the_worked_example():
    X = torch.tensor([[0.0, 1], [2, 3], [4, 5]], dtype=DOUBLE)
    y = torch.tensor([1.0, -1, 2], dtype=DOUBLE)
    Z = data.linear_prompt(X, y, torch.tensor([0.5, -2.0], dtype=DOUBLE), torch.tensor(1.5, dtype=DOUBLE))
    out = nets.LinearLoopedTransformer(2, 1).attention(Z)
    assert out[-1].tolist() == [-33.0, -45.0, 0.0]
    assert not out[:-1].any()


@pytest.mark.parametrize("seed", range(3))
def test_the_query_s_attention_is_the_gradient(seed):
    Z, _ = drawn(seed=seed)
    X, y, q, alpha = Z[:, :-1, :-1], Z[:, :-1, -1], Z[:, -1, :-1], Z[:, -1, -1]
    out = nets.LinearLoopedTransformer(5, 1).attention(Z)
    expected = torch.stack([q[i] @ X[i].T @ X[i] + alpha[i] * y[i] @ X[i] for i in range(len(Z))])
    assert worst(out[:, -1, :-1], expected) < 1e-12
    assert not out[:, -1, -1].any()
    assert not out[:, :-1].any()


@pytest.mark.parametrize("form", ["attention", "rows", "gram", "spectral"])
def test_loops_are_steps_of_gradient_descent_whatever_start_and_schedule(form):
    Z, _ = drawn(noise=0.3)
    X, y, q, alpha = Z[:, :-1, :-1], Z[:, :-1, -1], Z[:, -1, :-1], Z[:, -1, -1]
    net = nets.LinearLoopedTransformer(5, 30, step=np.linspace(0.2, 1.9, 30).tolist(), form=form)
    path = theory.looped_transformer.least_squares_path(X, y, -q / alpha[:, None], net.rates(Z))
    answers = net.trajectory(Z)
    assert answers.shape == (31, 5, 5)
    assert worst(answers, alpha[:, None] * path) < 1e-12
    assert torch.equal(net(Z), answers[-1])


def test_forms_agree_with_loops_over_entries():
    Z, _ = drawn(3, 6, 3)
    net = nets.LinearLoopedTransformer(3, 7, step=0.02, relative=False)
    expected = torch.stack([torch.from_numpy(by_hand(one, 7, 0.02)) for one in Z])
    for form in ("attention", "rows", "gram", "spectral"):
        assert worst(net.trajectory(Z, form)[-1], expected) < 1e-13
    single = net.trajectory(Z[0], "rows")
    assert single.shape == (8, 3)
    assert worst(single[-1], expected[0]) < 1e-13


def test_examples_and_alpha_never_change():
    Z, _ = drawn()
    for layer in nets.LinearLoopedTransformer(5, 12).layers(Z):
        assert torch.equal(layer[:, :-1], Z[:, :-1])
        assert torch.equal(layer[:, -1, -1], Z[:, -1, -1])


def test_the_error_is_the_product_of_what_each_mode_keeps():
    Z, theta = drawn(alpha=1.0)
    X = Z[:, :-1, :-1]
    net = nets.LinearLoopedTransformer(5, 9, step=[1.0, 0.5, 1.9] * 3)
    eigenvalues, V = torch.linalg.eigh(X.mT @ X)
    kept = (1 - net.rates(Z)[..., None] * eigenvalues).prod(0)
    start = -Z[:, -1, :-1] - theta
    expected = (V @ (kept * (V.mT @ start[..., None])[..., 0])[..., None])[..., 0]
    assert worst(net(Z) - theta, expected) < 1e-13


def test_from_zero_the_prediction_error_is_a_sum_of_powers_and_falls():
    Z, theta = drawn(8, 20, 4, query=0.0)
    X, alpha = Z[:, :-1, :-1], Z[:, -1, -1]
    path = nets.LinearLoopedTransformer(4, 25).trajectory(Z)
    errors = (alpha - (path * theta).sum(-1)) / alpha
    eigenvalues, V = torch.linalg.eigh(X.mT @ X)
    weights = (V.mT @ theta[..., None])[..., 0].square()
    for t in range(26):
        expected = ((1 - eigenvalues / eigenvalues[:, -1:]) ** t * weights).sum(-1)
        assert worst(errors[t], expected) < 1e-13
    assert (errors > -1e-14).all()
    assert (errors.diff(dim=0) < 1e-14).all()


def test_invariances():
    Z, theta = drawn(query=0.0, alpha=1.0)
    X, y, q, alpha = Z[:, :-1, :-1], Z[:, :-1, -1], Z[:, -1, :-1], Z[:, -1, -1]
    net = nets.LinearLoopedTransformer(5, 10)
    plain = net(Z)
    assert worst(net(data.linear_prompt(X, y, q, -3 * alpha)), -3 * plain) < 1e-13
    assert worst(net(data.linear_prompt(7 * X, 7 * y, q, alpha)), plain) < 1e-13
    turn = torch.linalg.qr(torch.randn(5, 5, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))).Q
    turned = net(data.linear_prompt(X @ turn, y, q, alpha))
    assert worst((turned * (theta @ turn)).sum(-1), (plain * theta).sum(-1)) < 1e-13


def test_a_perfectly_conditioned_prompt_needs_one_loop():
    Z, theta = drawn(query=0.0, alpha=1.0, condition=1.0)
    assert worst(nets.LinearLoopedTransformer(5, 1)(Z), theta) < 1e-13


@pytest.mark.parametrize("form", ["attention", "rows", "gram", "spectral"])
def test_fewer_examples_than_coordinates_are_no_trouble(form):
    Z, _ = drawn(4, 3, 6, query=0.5)
    X, y, q, alpha = Z[:, :-1, :-1], Z[:, :-1, -1], Z[:, -1, :-1], Z[:, -1, -1]
    net = nets.LinearLoopedTransformer(6, 15, form=form)
    path = theory.looped_transformer.least_squares_path(X, y, -q / alpha[:, None], net.rates(Z))
    assert worst(net(Z), alpha[:, None] * path[-1]) < 1e-12


def test_general_weights_and_the_query_that_sees_itself_in_all_their_forms():
    Z, _ = drawn(4, 8, 3)
    draw = torch.Generator().manual_seed(1)
    Q, P = (torch.randn(4, 4, dtype=DOUBLE, generator=draw) for _ in range(2))
    for mask in ("query", "itself"):
        net = nets.LinearLoopedTransformer(3, 5, step=0.002, relative=False, Q=Q, P=P, mask=mask)
        literal = net.trajectory(Z, "attention")
        assert worst(literal[0], literal[-1]) > 1e-2
        assert worst(net.trajectory(Z, "rows"), literal) < 1e-12
        assert worst(net.trajectory(Z, "gram"), literal) < 1e-12
        with pytest.raises(ValueError, match="spectral"):
            net.trajectory(Z, "spectral")


@pytest.mark.parametrize(
    ("wrong", "size"), [({"mask": "itself"}, 0.51), ({"P": torch.eye(4)}, 0.77), ({"mask": "causal"}, 1.6)]
)
def test_mutations_break_the_identity_by_as_much_as_was_found(wrong, size):
    Z, _ = drawn(64, 12, 3)
    X, y, q, alpha = Z[:, :-1, :-1], Z[:, :-1, -1], Z[:, -1, :-1], Z[:, -1, -1]
    right = nets.LinearLoopedTransformer(3, 20)
    path = alpha[:, None] * theory.looped_transformer.least_squares_path(X, y, -q / alpha[:, None], right.rates(Z))[-1]
    assert worst(right(Z), path) < 1e-12
    off = (nets.LinearLoopedTransformer(3, 20, form="attention", **wrong)(Z) - path).abs().amax(1)
    assert size / 4 < off.median().item() < 4 * size


def test_what_is_learned_has_gradients_and_nothing_else_has():
    Z, theta = drawn(alpha=1.0, query=0.0)
    net = nets.LinearLoopedTransformer(5, 4, relative=False, step=0.01, learned=("P11", "step"))
    assert {name for name, _ in net.named_parameters()} == {"P11", "step"}
    (net(Z) - theta).square().sum().backward()
    assert net.P11.grad.abs().min() > 0
    assert net.step.grad.abs() > 0
    entry, nudge = (1, 2), 1e-6
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            net.P11[entry] += sign * nudge
            values.append((net(Z) - theta).square().sum().item())
            net.P11[entry] -= sign * nudge
    assert net.P11.grad[entry].item() == pytest.approx((values[0] - values[1]) / (2 * nudge), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((0, 3), {}, "at least 1"),
        ((2, 3), {"step": [1.0, 1.0]}, "one for each loop"),
        ((2, 3), {"P": torch.eye(2)}, "3 x 3"),
        ((2, 3), {"mask": "all"}, "kind must be"),
        ((2, 3), {"learned": ("alpha",)}, "alpha"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments, options, said):
    with pytest.raises(ValueError, match=said):
        nets.LinearLoopedTransformer(*arguments, **options)


def test_forms_that_are_not_are_refused():
    Z, _ = drawn()
    with pytest.raises(ValueError, match="form"):
        nets.LinearLoopedTransformer(5, 2).trajectory(Z, "columns")
    with pytest.raises(ValueError, match="moves the examples"):
        nets.LinearLoopedTransformer(5, 2, mask="causal")(Z)
