"""Figures 7.5 and F.3. Linear CKA between networks that were pre-trained on different sets, on the target's pictures.

In the paper networks of single sets are unlike each other, and along growing unions they become less like the first.
CKA is high between networks that have learned nothing in common, so an untrained network, and one of the target's set
with as many pictures of noise, are compared as well. The network that others are compared with shares its initial
weights with none of them. The trials are those of `unions`.
"""

from featurelab.pipelines import Missing, above, at_least, measures, np, torch
from featurelab.pipelines.contrastive_tradeoff.pretrained import unions
from featurelab.pipelines.contrastive_tradeoff.pretrained.unions import (
    DESKTOP_NETWORKS, NAMES, NETWORKS, PAPER_NETWORKS,
)

SINGLE = ["S", "G", "N"]
TRAINED = [*NAMES, "noise", *SINGLE, "again", "untrained"]

figure = unions.figure.variant(
    "similarity", figures=("Fig. 7.5", "Fig. F.3"), title="Linear CKA between pre-trained networks",
    caption="Features of the target's test pictures. D and D' are two networks of the target's set; D has other "
    "initial weights than all others. Noise: the target's set with as many pictures of noise as DSGN has of other "
    "sets; both take as many updates, and a single set takes fewer. Means over seeds.",
    grid=unions.grid_of([NETWORKS[name] for name in TRAINED], *unions.SETTINGS),
    paper_grid=unions.grid_of([PAPER_NETWORKS[name] for name in TRAINED], *unions.SETTINGS), reads=unions.figure,
    minutes=2.5, controls=("untrained", "shuffled_pairs"), desktop=unions.DESKTOP, desktop_minutes=16,
    desktop_grid=unions.grid_of([DESKTOP_NETWORKS[name] for name in TRAINED], *unions.SETTINGS),
    reduced=f"D is CIFAR-10, S CIFAR-100, G GTSRB and N MNIST; {unions.REDUCED}",
)


def compared(runs):
    """The networks by their names in the figure: D is the one that shares its initial weights with no other."""
    scales, trained = (NETWORKS, DESKTOP_NETWORKS, PAPER_NETWORKS), runs.values("union")
    networks = next((scale for scale in scales if scale["D"].union in trained), PAPER_NETWORKS)
    return {"D": networks["again"], "D'": networks["D"]} | {
        name: networks[name] for name in (*SINGLE, *NAMES[1:], "noise", "untrained")}


def similarities(runs):
    """CKA of each pair of networks, of one seed."""
    features = {}
    for name, network in compared(runs).items():
        (arrays,) = runs.arrays("features", union=network.union, length=network.length, repeat=network.repeat)
        features[name] = torch.from_numpy(np.asarray(arrays["target"]))
    return {(a, b): measures.linear_cka(X, Y).item() for a, X in features.items() for b, Y in features.items()}


@figure.claim("c16_single_sets_are_unlike", where="Fig. 7.5", paper="small off the diagonal",
    says="The target's network is more like one of another seed, and like the whole union's, than like that of any "
    "other set (least differences of CKA)", expect={"seeds": above(0), "union": above(0)})
def unlike(runs):
    cka = similarities(runs)
    nearest = max(cka["D", name] for name in SINGLE)
    return {"seeds": cka["D", "D'"] - nearest, "union": cka["D", "DSGN"] - nearest}


@figure.claim("c16b_less_and_less_like_the_first", where="Fig. 7.5", paper="decreases along the row",
    says="The target's network is at least as like the network of two sets as that of the whole union (difference of "
    "CKA, with a tolerance of 0.01)", expect=at_least(-0.01))
def decreasing(runs):
    cka = similarities(runs)
    return cka["D", "DS"] - cka["D", "DSGN"]


@figure.claim("c16c_less_than_with_noise", origin="ours", where="Fig. 7.5",
    says="The whole union's network is less like the target's than one of the target's set with as many pictures of "
    "noise, and than one of another seed (differences of CKA)", expect={"noise": above(0), "seeds": above(0)})
def beyond_noise(runs):
    cka = similarities(runs)
    return {"noise": cka["D", "noise"] - cka["D", "DSGN"], "seeds": cka["D", "D'"] - cka["D", "DSGN"]}


@figure.claim("c16d_more_than_untrained", origin="ours", where="Fig. 7.5",
    says="Each network of another set is more like the target's than an untrained network is (least difference of CKA)",
    expect=above(0))
def beyond_untrained(runs):
    cka = similarities(runs)
    return min(cka["D", name] for name in SINGLE) - cka["D", "untrained"]


def draw_matrix(axis, matrix, names, digits=2):
    """CKA between networks, in colours and in numbers."""
    axis.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
    for (row, column), value in np.ndenumerate(matrix):
        color = "white" if value < 0.6 else "black"
        axis.text(column, row, f"{value:.{digits}f}", ha="center", va="center", color=color)
    axis.set_xticks(range(len(names)), names, rotation=30)
    axis.set_yticks(range(len(names)), names)
    axis.grid(visible=False)


@figure.draw(cols=2, size=(10, 4.4))
def panels(runs, axes):
    try:
        by_seed = [similarities(runs.where(seed=seed)) for seed in runs.values("seed")]
    except ValueError as gap:
        raise Missing("not all networks of a seed are there") from gap
    panels = {"independent": ["D", "D'", *SINGLE, "DSGN", "untrained"], "incremental": [*NAMES, "noise", "D'"]}
    for axis, (title, names) in zip(axes[0], panels.items(), strict=True):
        draw_matrix(axis, np.array([[np.mean([cka[a, b] for cka in by_seed]) for b in names] for a in names]), names)
        axis.set_title(title)
