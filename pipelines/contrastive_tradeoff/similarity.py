"""Figures 7.5 and F.3. Linear CKA between networks that were pre-trained on different sets, on the target's pictures.

The paper: networks of single sets are unlike each other, and along growing unions they become less like the first. CKA
is high between networks that have learned nothing in common, so an untrained network, and the target's set with as
many pictures of noise, are compared as well. The network to which others are compared shares its initial weights with
none of them. The trials are those of `contrastive_tradeoff/unions`.
"""

from featurelab.pipelines import Missing, above, at_least, measures, np, torch
from featurelab.pipelines.contrastive_tradeoff import unions
from featurelab.pipelines.contrastive_tradeoff.unions import BESIDE, FIRST, GROWING, NAMES, NOISY, OTHER, STEPS, WHOLE

# D alone has other initial weights than all the others, so that what it is compared with never shares them
CELLS = {"D": (FIRST, "own", 1), "D'": (FIRST, "own", 0), "S": ("shapes", "own", 0), "G": ("gratings", "own", 0),
    "N": ("photos", "own", 0), "DS": (STEPS[1], "own", 0), "DSG": (STEPS[2], "own", 0), "DSGN": (WHOLE, "own", 0),
    "noise": (NOISY, "own", 0), "untrained": (FIRST, "none", 0)}
PAPER_CELLS = {
    "D": (unions.PAPER_STEPS[0], "own", 1), "D'": (unions.PAPER_STEPS[0], "own", 0), "S": ("svhn", "own", 0),
    "G": ("gtsrb", "own", 0), "N": ("imagenet32", "own", 0), "DS": (unions.PAPER_STEPS[1], "own", 0),
    "DSG": (unions.PAPER_STEPS[2], "own", 0), "DSGN": (unions.PAPER_STEPS[3], "own", 0),
    "noise": (unions.PAPER_STEPS[0] + "+noise", "own", 0), "untrained": (unions.PAPER_STEPS[0], "none", 0),
}
SINGLE = ("S", "G", "N")

figure = unions.figure.variant(
    "similarity", figures=("Fig. 7.5", "Fig. F.3"), title="Linear CKA between pre-trained networks",
    caption="Features of the target's test pictures. D has other initial weights than all others, D' too; noise: "
    "the target's set with as many pictures of noise as DSGN has of other sets. Means over seeds.",
    grid={unions.AXES: [*GROWING, BESIDE[0], *unions.ALONE, *OTHER], "seed": [0, 1, 2]},
    paper_grid={unions.AXES: [unions.PAPER_CELLS[i] for i in (0, 1, 2, 3, 6, 7, 8, 9, 10, 11)], "seed": [0, 1, 2]},
    reads=unions.figure, minutes=2.5, controls=("untrained", "shuffled_pairs"), small=unions.TINY,
)


def features(runs):
    """Of each network."""
    known = CELLS if FIRST in runs.values("union") else PAPER_CELLS
    found = {}
    for name, (union, length, repeat) in known.items():
        (kept,) = runs.arrays("features", union=union, length=length, repeat=repeat)
        found[name] = torch.from_numpy(np.asarray(kept["target"]))
    return found


def similarities(runs):
    """CKA of each pair of networks, of one seed."""
    found = features(runs)
    return {(a, b): measures.linear_cka(X, Y).item() for a, X in found.items() for b, Y in found.items()}


@figure.claim("c16_single_sets_are_unlike", where="Fig. 7.5", paper="small off the diagonal",
    says="the target's network is more like one of another seed, and like the union's, than like that of any other set "
    "(least differences)", expect={"seeds": above(0), "union": above(0)})
def unlike(runs):
    found = similarities(runs)
    nearest = max(found["D", name] for name in SINGLE)
    return {"seeds": found["D", "D'"] - nearest, "union": found["D", "DSGN"] - nearest}


@figure.claim("c16b_less_and_less_like_the_first", where="Fig. 7.5", paper="decreases along the row",
    says="along the unions networks become less like the first: CKA with the second over that with the last, which are "
    "allowed to be 0.01 apart the other way (difference)", expect=at_least(-0.01))
def decreasing(runs):
    found = similarities(runs)
    return found["D", "DS"] - found["D", "DSGN"]


@figure.claim("c16c_less_than_with_noise", origin="ours", where="Fig. 7.5",
    says="the union's network is less like the target's than one with as many pictures of noise, and than one of "
    "another seed (differences)", expect={"noise": above(0), "seeds": above(0)})
def beyond_noise(runs):
    found = similarities(runs)
    return {"noise": found["D", "noise"] - found["D", "DSGN"], "seeds": found["D", "D'"] - found["D", "DSGN"]}


@figure.claim("c16d_more_than_untrained", origin="ours", where="Fig. 7.5",
    says="networks of the other sets are more like the target's than an untrained one is (least difference)",
    expect=above(0))
def beyond_untrained(runs):
    found = similarities(runs)
    return min(found["D", name] for name in SINGLE) - found["D", "untrained"]


@figure.draw(cols=2, size=(10, 4.4))
def panels(runs, axes):
    by_seed = []
    for seed in runs.values("seed"):
        try:
            by_seed.append(similarities(runs.where(seed=seed)))
        except ValueError as gap:
            raise Missing("not all networks of this seed are there") from gap
    for axis, names, title in zip(
        axes[0], (["D", "D'", *SINGLE, "DSGN", "untrained"], [*NAMES, "noise", "D'"]),
        ("independent", "incremental"), strict=True,
    ):
        matrix = np.array([[np.mean([found[a, b] for found in by_seed]) for b in names] for a in names])
        axis.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
        for (i, j), value in np.ndenumerate(matrix):
            axis.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if value < 0.6 else "black")
        axis.set_xticks(range(len(names)), names, rotation=30)
        axis.set_yticks(range(len(names)), names)
        axis.set_title(title)
        axis.grid(visible=False)
