"""Tables 7.2, F.6 and F.7. Few labels on features of frozen CLIP and MoCo v3, through an adapter.

The encoder stays as it was published; its features of stored views of each picture, 1, 10 or 100 of them, are computed
once. A linear probe learns on the pictures themselves; FT and CR train an adapter, two layers with 1024 hidden units,
and a linear head. The paper has CR > FT > LP in every row of Table 7.2, and in most cells of F.6 and F.7, not in all:
on CIFAR-10 with 1% of the labels the probe is best.

The laptop preset pre-trains an encoder on a union of small sets, among which is none of digits as they are read, and
freezes it.

Not stated and inferred: CLIP's features are those after its projection, as its own code returns them; a picture's first
stored view is itself, the others are SimSiam's changes; an update learns labels on each picture of its batch and on one
of its stored views, and CR contrasts that with another one, so that more stored views take no more updates.
"""

from typing import Any

from featurelab.pipelines import (
    Cost,
    Experiment,
    Field,
    Recorder,
    above,
    choice,
    data,
    language,
    learners,
    loguniform,
    nets,
    np,
    stream_seed,
    torch,
)
from featurelab.pipelines.contrastive_tradeoff import pretraining
from featurelab.pipelines.contrastive_tradeoff.foundation import (
    CONTROLS,
    ORDER,
    FoundationConfig,
    accuracy,
    descended,
    drawn,
    fine_tuned,
    gains,
    labelled,
    percent,
    published_on,
)
from featurelab.pipelines.contrastive_tradeoff.printed_pictures import FOUNDATION_FEW

CLIP, MOCO = "openai/clip-vit-large-patch14", "nyu-visionx/moco-v3-vit-b"
SIZES = {CLIP: (304e6, 81e9, 768), MOCO: (86e6, 17e9, 768)}  # parameters, products a picture, features
THERE = {name: rows for name, (rows, _) in pretraining.PUBLIC.items()} | {"imagenet": 1_281_167}
TESTED = {"gtsrb": 10_000}  # test pictures that the paper takes, where not all
MOST_OTHERS = 10_000  # unrelated pictures
ROWS = [name for name in FOUNDATION_FEW if not name.startswith("SimCSE")]


class PicturesConfig(FoundationConfig):
    union: str = Field("turned+shapes+gratings+photos", description="what the encoder is pre-trained on here, by +")
    projected: bool = Field(True, description="CLIP: features after its projection, or the class token before it")
    stored: tuple[int, ...] = Field((1, 10, 100), min_length=2, description="stored views of each picture, rising")
    width: int = Field(1024, ge=1, description="hidden and output units of the adapter")


figure = Experiment(
    name="contrastive_tradeoff/foundation_pictures",
    figures=("Table 7.2", "Table F.6", "Table F.7"),
    title="An adapter on features of a frozen encoder of pictures, with few labels",
    caption="Test accuracy by the share of labelled pictures: a linear probe (LP), fine-tuning (FT) and contrastive "
    "regularisation (CR) with 1, 10 or 100 stored views. Means over seeds and their range. Crosses, dotted: the paper.",
    laptop=PicturesConfig(width=64, lr=0.2, probe_lr=0.2, epochs=120),
    paper=PicturesConfig(
        family="CLIP",
        model=CLIP,
        tasks="imagenet",
        others="svhn",
        n_train=1_281_167,
    ),
    grid={"seed": [0, 1, 2]},
    paper_grid={
        ("family", "model", "tasks", "others"): [
            ("CLIP", CLIP, "imagenet", "svhn"),
            ("CLIP", CLIP, "svhn", "gtsrb"),
            ("CLIP", CLIP, "gtsrb", "svhn"),
            ("MoCo v3", MOCO, "cifar10", "svhn"),
            ("MoCo v3", MOCO, "svhn", "gtsrb"),
            ("MoCo v3", MOCO, "gtsrb", "svhn"),
        ],
        "seed": [0, 1, 2],
    },
    sweep_axes={
        "lr": loguniform(1e-3, 1.0),
        "width": choice(16, 64, 256, 1024),
        "weight_decay": loguniform(1e-6, 1e-2),
        "strength": loguniform(0.01, 10.0),
    },
    metric="accuracy/mean",
    mode="max",
    minutes=1,
    needs=("cifar10", "gtsrb", "imagenet", "svhn"),
    stand_in="an MLP that is pre-trained on generated pictures of 8 x 8 pixels in place of published encoders, and "
    "small sets in place of public ones",
    controls=CONTROLS,
    small={
        "n_train": 40,
        "n_test": 40,
        "pretraining_epochs": 1,
        "encoder_width": 4,
        "width": 4,
        "batch_size": 20,
        "shares": (0.5, 1.0),
        "epochs": 5,
        "stored": (1, 2, 3),
        "tasks": "digits",
    },
)


@figure.cost
def cost(config: PicturesConfig) -> Cost:
    """Passes of all stored views through the encoder, of which each has one, and of fine-tuning."""
    names = config.tasks.split("+")
    sizes = [size(config, name) for name in names]
    views = max(config.stored)
    if config.model is None:
        small = pretraining.cost(stand_in(config))
        body, products, dim, before = (
            float(small.parameters),
            float(small.parameters),
            config.encoder_width,
            small.flops,
        )
    else:
        (body, products, dim), before = SIZES.get(config.model, SIZES[MOCO]), 0.0
    adapter = config.width * (dim + config.width)
    methods = 2 * len(config.stored)
    steps = methods * sum(config.epochs * -(-round(s * n) // config.batch_size) for n in sizes for s in config.shares)
    work = before + 2.0 * products * views * sum(sizes) + 18.0 * adapter * config.batch_size * steps
    memory = (4.0 if config.model is None else 2.0) * dim * (views * max(sizes) + 10 * MOST_OTHERS) + 4.0 * body
    read = () if config.model is None else (*names, config.others)
    return Cost(
        int(body + adapter),
        work,
        memory,
        steps,
        tuple(dict.fromkeys(read)),
        () if config.model is None else (config.model,),
    )


def size(config: PicturesConfig, name: str) -> int:
    """Training pictures of a set."""
    return config.n_train if config.model is None else min(config.n_train, THERE[name])


def stand_in(config: PicturesConfig) -> "pretraining.UnionConfig":
    """The pre-training of the encoder that stands in for a published one."""
    control = config.control if config.control == "untrained" else "none"
    sets = config.union.split("+")
    return pretraining.UnionConfig(
        seed=config.seed,
        threads=config.threads,
        device=config.device,
        precision=config.precision,
        control=control,
        union=config.union,
        target=sets[0],
        tasks=config.union,
        n_train=config.n_train,
        width=config.encoder_width,
        epochs=config.pretraining_epochs,
    )


class Pictures:
    """Sets of pictures as their features in stored views, of a published encoder or of the stand-in."""

    def __init__(self, config: PicturesConfig, recorder: Any) -> None:
        self.config = config
        if config.model is None:
            self.change: Any = data.SmallChanges()
            union = stand_in(config)
            self.encoder: Any = pretraining.pretrained(union, recorder).encoder.eval()
            self.device, self.scale = "cpu", 1.0
            own = self.stored([pretraining.union_of(union).train[0]], 1, "union").clean
            self.scale = 1 / own.square().mean().sqrt().item()  # rates are those of features of this size
        else:
            self.device, kind = published_on(config)
            weights: Any = kind
            self.scale = 1.0
            self.encoder = language.load_picture_encoder(
                config.model, projected=config.projected, weights=weights, device=self.device
            )
            self.change = data.simsiam_change(self.encoder.edge)

    def stored(self, chunks: Any, views: int, name: str) -> "data.StoredViews":
        seed = stream_seed(self.config.seed, f"views of {name}")
        kind = torch.float32 if self.config.model is None else torch.float16
        return data.stored_views(self.encode, chunks, views=views, change=self.change, seed=seed, dtype=kind)

    def encode(self, x: "torch.Tensor") -> "torch.Tensor":
        return self.scale * self.encoder(x.to(self.device)).flatten(1)

    def task(self, name: str, views: int, most: int | None = None) -> Any:
        """Stored views of training pictures, their labels, and features and labels of test pictures."""
        config = self.config
        n = min(size(config, name), most or config.n_train)
        if config.model is None:
            kind: Any = name
            given = data.small_pictures(kind, n, config.n_test, seed=config.streams.data, dtype=config.dtype)
            (x, y), (tx, ty) = given.train, given.test
            return self.stored([x], views, name), y, self.stored([tx], 1, name).clean, ty
        filled = name == "gtsrb" and n == THERE[name]
        rows: dict[str, Any] = {"per_class": pretraining.SIGNS_A_CLASS} if filled else {"n_train": n}
        n_test = config.n_test or TESTED.get(name)
        train, test = data.public_rows(name, n_test=n_test, seed=config.streams.data, **rows)
        features = self.stored(self.shown(train, filled), views, name)
        given = data.TensorData((torch.arange(len(train.rows)), torch.from_numpy(train.labels)), dtype="float32")
        return (
            features,
            given.train[1],
            self.stored(self.shown(test, False), 1, name).clean,
            torch.from_numpy(test.labels),
        )

    def shown(self, rows: Any, filled: bool) -> Any:
        """Pictures as the encoder wants them, a few at a time; those that fill up a class are changed."""
        again = torch.from_numpy(data.repeated_rows(rows.rows)) if filled else None
        warps, place = data.Warps(), 0
        for some in rows.pictures():
            x = self.encoder.prepared(some)
            if again is not None:
                where = again[place : place + len(x)].nonzero()[:, 0]
                drawn = [data.stream(self.config.streams.data, f"sign {place + i}").random(11) for i in where.tolist()]
                if drawn:
                    changed = warps(x[where].float() / 255, torch.from_numpy(np.stack(drawn)))
                    x[where] = (255 * changed).round().clamp(0, 255).to(torch.uint8)
                place += len(x)
            yield x


@figure.trial
def train(config: PicturesConfig, recorder: Recorder) -> None:
    pictures = Pictures(config, recorder)
    found: list[float] = []
    enough = next(views for views in config.stored if views > 1)
    others, *_ = pictures.task(config.others, enough, MOST_OTHERS)
    for name in config.tasks.split("+"):
        stored, y, *test = pictures.task(name, max(config.stored))
        classes = int(torch.cat([y, test[1]]).max()) + 1
        for share in config.shares:
            rows = labelled(config, y, share, name)
            values = {f"{name}/lp": descended(config, stored.clean[rows], y[rows], test)}
            for views in config.stored:
                ways = {"ft": 0.0} | ({"cr": config.strength} if views > 1 else {})
                ways |= {"cr_others": config.strength} if views == enough else {}
                for way, strength in ways.items():
                    beside = others if way == "cr_others" else None
                    task = data.StoredRows(
                        stored.first(views),
                        rows,
                        y[rows],
                        batch_size=config.batch_size,
                        others=beside,
                        shuffled=config.control == "shuffled_pairs",
                        order_seed=config.streams.order,
                        name=f"{name} {len(rows)} {way} {views}",
                    )
                    net = adapted(config, recorder, task, stored, classes, strength)
                    values[f"{name}/{way}_{views}"] = accuracy(net, *test)
            recorder.log(values, step=percent(share))
            found += values.values()
    recorder.log({"accuracy/mean": float(np.mean(found))}, step=0)


def adapted(config: PicturesConfig, recorder: Any, task: Any, stored: Any, classes: int, strength: float) -> Any:
    """An adapter and a linear head on it, fine-tuned."""
    dim = stored.features.shape[2]
    seed = stream_seed(config.seed, "adapter")
    adapter = nets.projector((dim, config.width, config.width), seed=seed, dtype=config.dtype)
    optimizer = learners.sgd(config.lr, momentum=0.9, weight_decay=config.weight_decay)
    return fine_tuned(
        config,
        recorder,
        task,
        adapter,
        config.width,
        classes,
        learners.NTXent,
        optimizer,
        strength,
        schedule=learners.cosine_schedule(config.epochs),
    )


def stored_views_of(runs):
    """The numbers of stored views that were compared: one, some, most."""
    (stored,) = {tuple(stored) for stored in runs.trials.stored}
    return stored[0], stored[1], stored[-1]


@figure.claim(
    "c17f_order_with_all_labels",
    paper="CR > FT > LP in each row: 84.94, 83.65, 77.84% (CLIP, ImageNet)",
    where="Table 7.2",
    expect=ORDER,
    says="with all labels and some stored views, CR is better than FT, and FT than the probe, averaged over sets "
    "(gains)",
)
def order(runs):
    _, some, _ = stored_views_of(runs)
    cr, ft = f"cr_{some}", f"ft_{some}"
    return {
        "CR_over_FT": float(gains(runs, cr, ft)[:, -1].mean()),
        "FT_over_LP": float(gains(runs, ft, "lp")[:, -1].mean()),
    }


@figure.claim(
    "c17g_cr_over_ft_on_stored_views",
    paper="1.2 points on average, in 57 of 60 cells",
    where="Tables F.6, F.7",
    expect=above(0),
    says="with as many stored views CR is better than FT, averaged over cells (gain)",
)
def over_ft(runs):
    _, *several = stored_views_of(runs)
    return float(np.mean([gains(runs, f"cr_{views}", f"ft_{views}").mean() for views in dict.fromkeys(several)]))


@figure.claim(
    "c17h_cr_over_contrast_of_others",
    origin="ours",
    where="Tables F.6, F.7",
    expect=above(0),
    says="CR is better than FT with the contrastive loss of as many unrelated pictures (gain)",
)
def over_others(runs):
    _, some, _ = stored_views_of(runs)
    return float(gains(runs, f"cr_{some}", f"cr_others_{some}").mean())


@figure.claim(
    "c17i_more_stored_views",
    paper="65.76, 78.22 and 80.13% (CLIP, SVHN)",
    where="Tables F.6, F.7",
    says="FT is better with more stored views, averaged over cells (gains, one to some and some to most)",
    expect={"some": above(0), "most": above(0)},
    controls=("permuted_labels", "untrained"),
)
def more_views(runs):
    one, some, most = stored_views_of(runs)
    return {
        "some": float(gains(runs, f"ft_{some}", f"ft_{one}").mean()),
        "most": float(gains(runs, f"ft_{most}", f"ft_{some}").mean()),
    }


METHODS = {
    "lp": "LP",
    "ft_{0}": "FT, {0} view",
    "ft_{1}": "FT, {1} views",
    "ft_{2}": "FT, {2} views",
    "cr_{1}": "CR, {1} views",
    "cr_{2}": "CR, {2} views",
    "cr_others_{1}": "CR on others",
}


@figure.draw(cols=2, size=(11, 4.4))
def panels(runs, axes):
    views = stored_views_of(runs)
    printed = {"lp": "LP", "ft_{0}": "FT1", "ft_{1}": "FT10", "ft_{2}": "FT100", "cr_{1}": "CR10", "cr_{2}": "CR100"}
    methods = {key.format(*views): (label.format(*views), printed.get(key, "")) for key, label in METHODS.items()}
    drawn(runs, axes, methods, ("lp", f"ft_{views[1]}", f"cr_{views[1]}"), ROWS)
