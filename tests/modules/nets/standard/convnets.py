"""What must hold of every convolutional network."""

import torch


def parameters(net):
    return sum(p.numel() for p in net.parameters())


def check_net(build, shape, features, classes):
    """`build(seed=..., dtype=...)` draws from its seed alone, and its head sees its features."""
    before = torch.random.get_rng_state()
    net, again, other = build(seed=1), build(seed=1), build(seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    drawn = [(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True) if a.ndim > 1]
    assert all(not torch.equal(a, b) for a, b in drawn)
    double = build(seed=1, dtype="float64")
    assert all(torch.equal(a, b.float()) for a, b in zip(net.parameters(), double.parameters(), strict=True))
    assert not any(p.device.type == "meta" for p in [*net.parameters(), *net.buffers()])

    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    net.train()(x)  # moves running statistics
    net.eval()
    h = net.features(x)
    assert tuple(h.shape) == (shape[0], features)
    assert tuple(net(x).shape) == (shape[0], classes)
    torch.testing.assert_close(net(x), h @ net.head.weight.T + net.head.bias)
    one = torch.cat([net(x[i : i + 1]) for i in range(len(x))])  # in eval mode samples do not see one another
    torch.testing.assert_close(one, net(x), rtol=1e-4, atol=1e-5)
    net.train()(x).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
