import itertools

import numpy as np
import pytest
import torch

from featurelab.modules import measures, theory
from featurelab.modules.nets import max_margin_net, max_margin_width, polynomial_net

TABLE = {
    (5, 2): 0.03042903097250922,
    (7, 2): 0.017144816662454657,
    (5, 3): 0.009375,
    (3, 4): 0.01460593486680443,
    (3, 5): 0.007716049382716049,
}


def everything(modulus, terms):
    x = torch.tensor(list(itertools.product(range(modulus), repeat=terms)))
    return x, x.sum(1) % modulus


@pytest.mark.parametrize(("modulus", "terms", "width"), [(5, 2, 3), (3, 4, 2), (3, 5, 2), (7, 3, 4)])
def test_outputs_are_sums_over_neurons(modulus, terms, width):
    net = polynomial_net(modulus, terms, width, seed=1)
    x, _ = everything(modulus, terms)
    theta = net.neurons.detach().numpy()
    slow = np.zeros((len(x), modulus))
    for row, a in enumerate(x.tolist()):
        for neuron in theta:
            z = sum(neuron[j][a[j]] for j in range(terms))
            slow[row] += z**terms * neuron[-1]
    torch.testing.assert_close(net(x), torch.from_numpy(slow))


@pytest.mark.parametrize("terms", [2, 3, 4, 5])
def test_the_network_is_homogeneous_of_degree_k_plus_one(terms):
    net = polynomial_net(5, terms, 6, seed=1)
    x, _ = everything(5, terms)
    before = net(x).detach()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(1.7)
    torch.testing.assert_close(net(x), before * 1.7 ** (terms + 1))


def test_weights_have_one_law_and_precisions_agree():
    net = polynomial_net(11, 3, 400, init_scale=2.0, seed=3)
    assert net.neurons.var().item() == pytest.approx(2 / 11, rel=0.05)
    assert net.neurons.mean().item() == pytest.approx(0, abs=0.02)
    single = polynomial_net(11, 3, 400, init_scale=2.0, seed=3, dtype="float32")
    torch.testing.assert_close(single.neurons.double(), net.neurons, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("modulus", "terms"), TABLE)
def test_the_closed_form_network_has_the_largest_margin_at_every_tuple(modulus, terms):
    net = max_margin_net(modulus, terms)
    x, y = everything(modulus, terms)
    g = measures.class_margins(net(x), y)
    largest = theory.fourier_circuits.max_margin(modulus, terms)
    assert largest == pytest.approx(TABLE[modulus, terms], rel=1e-14)
    assert measures.group_norm(net.neurons, terms + 1).item() == pytest.approx(1, rel=1e-12)
    torch.testing.assert_close(g.worst, torch.full_like(g.worst, largest), rtol=1e-9, atol=0)
    torch.testing.assert_close(g.mean, g.worst, rtol=1e-9, atol=0)
    assert len(net.neurons) == max_margin_width(modulus, terms)


def test_neurons_of_the_closed_form_network_are_cosines_whose_phases_add_up():
    spectra = measures.neuron_spectra(max_margin_net(7, 3).neurons)
    assert spectra.peak.min() > 1 - 1e-12
    assert spectra.phase.min() > 1 - 1e-12
    assert spectra.agrees.all()
    assert spectra.spread.max() < 1 + 1e-9
    assert spectra.frequency.bincount().tolist() == [0, 32, 32, 32]


@pytest.mark.parametrize("sizes", [(2, 2, 4), (5, 1, 4), (5, 2, 0)])
def test_faulty_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="need width >= 1"):
        polynomial_net(*sizes, seed=0)
    with pytest.raises(ValueError, match="odd modulus"):
        max_margin_net(4, 2)
