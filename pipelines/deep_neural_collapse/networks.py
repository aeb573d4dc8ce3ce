"""Train a head of five fully connected layers, alone or on a convolutional trunk.

The head has five hidden layers and a readout, all without biases. Weights are Glorot-uniform times `init_scale`; the
readout, and the first layer on a trunk, keep torch's own initialisation. Targets are +1 for the class and -1 elsewhere.
The loss is the mean square over samples and outputs: 1 for an output of 0, and 0.36 for the best constant of ten
classes, at which networks of small initial weights stay for long. Measurements mean nothing there, so claims use only
networks that fit their training data.

All measures are of the head, in evaluation mode and double precision, on all training data; layer 0 is the first layer
of the head.
"""

from typing import Any, Literal

from featurelab.pipelines import (
    Cost, Field, Recorder, TrainedConfig, data, fit, learners, measures, nets, probes, stream_seed, torch,
)

SHAPES = {"digits": (1, 8), "mnist": (1, 28), "cifar10": (3, 32), "svhn": (3, 32)}  # channels, side
TRUNKS = {"none": 0, "plain": 128, "batch_norm": 128, "resnet18": 512, "vgg11": 8192}  # features


class NetworkConfig(TrainedConfig):
    dataset: Literal["digits", "mnist", "cifar10", "svhn"] = Field("digits", description="images to classify")
    n_train: int = Field(500, ge=20, multiple_of=10,
        description="training images; of the digits, equally many of each class")
    n_test: int = Field(1000, ge=1, description="test images; of the digits, all others")
    labels: Literal["signs", "one_hot"] = Field("signs", description="targets off the class: -1, or 0")
    trunk: Literal["none", "plain", "batch_norm", "resnet18", "vgg11"] = Field("none",
        description="convolutions below the head: none, three small ones (with batch norm), ResNet-18, VGG-11")
    width: int = Field(128, ge=2, description="units of each hidden layer of the head")
    hidden: int = Field(5, ge=2, description="hidden layers of the head")
    init_scale: float = Field(0.5, gt=0, description="multiplies the standard deviation of Glorot's initial weights")
    lr: float = Field(0.05, gt=0, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of SGD")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of all weights")
    batch_size: int = Field(32, ge=1, description="images in a step")
    epochs: int = Field(300, ge=1, description="passes over the training images")
    measure_every: int = Field(50, ge=1, description="epochs between measurements")
    power: float = Field(0.5, gt=0, le=1, description="power of the AGOP that is compared with W'W")
    centering: Literal["pearson", "cosine"] = Field("pearson", description="pearson: subtract the mean entry first")
    rotations: int = Field(3, ge=1, description="random rotations in the null level of the ansatz")


def run(config: NetworkConfig, recorder: Recorder):
    """Train the network and follow collapse, its causes, the ansatz and the losses."""
    task = images(config)
    net = network(config, task)
    descent = learners.sgd(config.lr, config.momentum, config.weight_decay)
    learner = learners.Supervised(net, loss=loss(config), optimizer=descent)
    targets = {"train": task.train[1], "test": task.test[1]}

    def look(module, x):
        if not all(weight.isfinite().all() for weight in module.parameters()):
            raise learners.Diverged(module.global_step)  # decompositions would fail on it
        values: dict[str, float] = {}
        for part, inputs in (("train", x), ("test", task.test[0].to(x))):
            features, outputs = head_inputs(config, module.net, inputs)
            y = targets[part].to(outputs)
            values[f"loss/{part}"] = loss(config)(lambda _, f=outputs: f, (features, y)).item()
            values[f"accuracy/{part}"] = (outputs.argmax(1) == y.argmax(1)).double().mean().item()
            if part == "train":
                values |= head_scores(config, head_weights(module.net), features.double(), y.argmax(1))
        return values

    watching = probes.Measure(look, every=config.measure_every, on="epoch", inputs=task.train, name="head")
    fit(learner, task, config, recorder, epochs=config.epochs, probes=[watching])


def images(config: NetworkConfig) -> Any:
    """Return the flat images, with one-hot labels and each pixel standardised."""
    streams, law = config.streams, {"dtype": config.dtype, "batch_size": config.batch_size}
    common: dict[str, Any] = {"seed": streams.data, "order_seed": streams.order, **law}
    if config.dataset == "digits":
        return data.Digits(config.n_train, split="balanced", **common)
    kind: dict[str, Any] = {"rows": "first", "targets": "one_hot", "pixels": "per_pixel", "ddof": 1}
    return data.PublicImages(config.dataset, config.n_train, config.n_test, **kind, **common)


def network(config: NetworkConfig, task: Any) -> Any:
    """Return the head alone, or a trunk on unflattened images with the head on its features."""
    channels, side = SHAPES[config.dataset]
    features = TRUNKS[config.trunk] or channels * side * side
    init, head_init = config.streams.init, stream_seed(config.seed, "head")
    head = nets.xavier_mlp(features, config.width, config.hidden, outputs=task.train[1].shape[1],
        gain=config.init_scale, first="xavier" if config.trunk == "none" else "default", seed=head_init,
        dtype=config.dtype)
    if config.trunk == "none":
        return head
    if config.trunk == "resnet18":
        trunk = nets.resnet18(1, channels=channels, stem="imagenet", seed=init, dtype=config.dtype).trunk
    elif config.trunk == "vgg11":
        trunk = nets.vgg_trunk(channels, seed=init, dtype=config.dtype)
    else:
        trunk = nets.conv_trunk(channels, (16, 32, 32), batch_norm=config.trunk == "batch_norm", pool=2, seed=init,
            dtype=config.dtype)
    return nets.TrunkHead(torch.nn.Sequential(torch.nn.Unflatten(1, (channels, side, side)), trunk), head)


def loss(config: NetworkConfig):
    """Return the mean squared error over samples and outputs, against the coded labels."""

    def coded(forward, batch):
        x, y = batch
        return learners.mse(forward, (x, 2 * y - 1 if config.labels == "signs" else y), factor=1 / y.shape[1])

    return coded


def head_inputs(config: NetworkConfig, net, x):
    """Return inputs and outputs of the head; the trunk takes 2048 images at a time."""
    with torch.no_grad():
        if config.trunk == "none":
            return x, net(x)
        features = torch.cat([net.features(part) for part in x.split(2048)])
        return features, net.head(features)


def head_weights(net):
    return [layer.weight.detach() for layer in getattr(net, "head", net).layers]


def head_scores(config: NetworkConfig, weights, features, labels):
    """Return NC1 of every layer's input and after S V', and the ansatz in every hidden layer."""
    values: dict[str, float] = {}
    tangents = measures.relu_tangent_covariance(weights, features)
    rotations = torch.Generator().manual_seed(stream_seed(config.seed, "rotations"))
    turns = torch.Generator().manual_seed(stream_seed(config.seed, "turned AGOP"))
    x = features
    for layer, weight in enumerate(weights):
        moments = measures.class_moments(x, labels)
        values[f"nc1/{layer}"] = measures.nc1(moments).item()
        values[f"nc2_cosines/{layer}"] = measures.nc2_cosines(moments).item()
        if layer == len(weights) - 1:
            within, between = measures.scatter_traces(moments)
            values[f"within_share/{layer}"] = (within / (within + between)).item()
            values[f"between_share/{layer}"] = (between / (within + between)).item()
            break
        W = weight.double()
        root = measures.agop_root(W, tangents[layer].K, config.power)
        right = measures.nc1(measures.class_moments((x @ root.V) * root.S, labels)).item()
        whole = measures.svd_attribution(W, x, labels)
        drops = measures.attribution_drops(whole | {"right": right})
        scores = measures.agop_root_scores(root, centering=config.centering, draws=config.rotations,
            generator=rotations)
        contracted = measures.agop_attribution(root, x, labels, generator=turns)
        measured = scores | {
            "nc1_agop": contracted["agop"],
            "nc1_agop_rotated": contracted["rotated"],
            "nc1_right": right,
            "nc1_left_error": abs(whole["right"] / right - 1),
            "nc1_drop": drops["total"],
            "nc1_drop_right": drops["right"],
            "nc1_drop_activation": drops["activation"],
            "nfa": measures.nfa(W, tangents[layer].K).item(),
            "stable_rank": (root.S / root.S[0]).square().sum().item(),
        }
        values |= {f"{name}/{layer}": value for name, value in measured.items()}
        x = (x @ W.T).relu_()
    return values


# of the convolutions: parameters; for one image of 32 x 32, multiplications and numbers stored for the backward pass
CONVOLUTIONS = {
    "none": (0, 0.0, 0.0),
    "plain": (14_000, 2.6e6, 5e4),
    "batch_norm": (14_000, 2.6e6, 1e5),
    "resnet18": (11_200_000, 3.7e7, 1.5e5),
    "vgg11": (4_500_000, 1.5e8, 3e5),
}


def cost(config: NetworkConfig) -> Cost:
    channels, side = SHAPES[config.dataset]
    inputs = TRUNKS[config.trunk] or channels * side * side
    head = inputs * config.width + (config.hidden - 1) * config.width**2 + 10 * config.width
    trunk, products, stored = CONVOLUTIONS[config.trunk]
    images = config.n_train * config.epochs
    measured = config.n_train * (config.epochs / config.measure_every + 1)
    # measurements: tangent features of ten outputs at each layer, and their covariances
    flops = 6.0 * images * (head + products * (side / 32) ** 2) + measured * 10 * 4.0 * head
    measuring = config.n_train * (channels * side**2 + 2 * (inputs + config.width) * 3)
    numbers = 4 * (head + trunk) + 2048 * stored + measuring
    steps = config.epochs * -(-config.n_train // config.batch_size)
    return Cost(head + trunk, flops, 4.0 * numbers, steps, () if config.dataset == "digits" else (config.dataset,))
