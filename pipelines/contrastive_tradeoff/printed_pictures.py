"""Numbers of chapter 7 and appendix F on pictures and texts, as they are printed: accuracies in percent.

Networks whose weights no hub holds (UniCL's Swin-T on ImageNet and GCC-15M, SimSiam and MoCo v3 on parts of ImageNet)
are here only as these numbers.
"""

SHARES = (1, 5, 10, 20, 100)  # labelled share of CIFAR-10, percent

# Figure 7.1: CIFAR-10, and the average over the four pre-training sets weighted by classes, at the first and the last
INTRODUCTION = {"target": (88.5, 76.4), "average": (18.3, 20.1)}

# Table 7.1: all labels of CIFAR-10, one column a union
ALL_LABELS = {
    "LP": (88.41, 85.18, 82.07, 75.64), "FT": (93.58, 93.35, 93.42, 92.92), "CR": (94.51, 94.26, 94.32, 93.66),
}

# Table F.5: method -> one row a union, one column a share of labels
FEW_LABELS = {
    "LP": ((80.63, 84.42, 85.88, 86.75, 88.41), (77.83, 81.43, 82.95, 83.53, 85.18),
        (75.64, 78.18, 79.80, 79.81, 82.07), (68.26, 71.04, 73.29, 73.73, 75.64)),
    "FT": ((68.74, 81.46, 85.20, 88.69, 93.58), (66.01, 80.20, 83.96, 88.01, 93.35),
        (62.79, 78.90, 83.89, 87.85, 93.42), (65.40, 78.99, 82.96, 86.75, 92.92)),
    "CR": ((83.66, 83.04, 86.18, 89.61, 94.51), (79.95, 81.77, 84.98, 88.97, 94.26),
        (76.20, 80.26, 84.11, 88.74, 94.32), (71.70, 78.94, 83.48, 87.77, 93.66)),
}

# Table F.9: linear probes without, and after, contrastive training on unlabelled CIFAR-10, one column a union
THEN_PROBED = {"LP": (88.41, 85.18, 82.07, 75.64), "CR+LP": (88.38, 86.91, 85.95, 82.43)}

# Tables F.2 and F.3: ImageNet-Bird and -Vehicle with 500 to 8,000 labels, then ImageNet with all of its labels
LABELS = (500, 1000, 2000, 4000, 8000)
# Tables F.10 and F.11, 1,000 labels: specific, ImageNet, and ImageNet followed by contrastive training

# Tables F.1 and F.4, UniCL: ImageNet alone, and with GCC-15M

# Table 7.2: all labels, ten augmentations; LP, FT, CR
FOUNDATION = {
    "CLIP ImageNet": (77.84, 83.65, 84.94), "CLIP SVHN": (63.44, 78.22, 78.72), "CLIP GTSRB": (86.56, 90.74, 92.01),
    "MoCo v3 CIFAR-10": (95.82, 96.17, 96.71), "MoCo v3 SVHN": (61.92, 65.36, 66.29),
    "MoCo v3 GTSRB": (75.37, 76.45, 81.28), "SimCSE IMDB": (86.49, 92.31, 92.85),
    "SimCSE AGNews": (87.76, 93.57, 93.94),
}

# Tables F.6 to F.8: one row a method (its number of augmentations), one column a share of labels as in SHARES
_FOUNDATION_FEW = {
    "CLIP ImageNet": """
LP 66.04 76.28 78.06 78.73 77.84
FT1 71.09 75.32 76.38 76.92 82.97
FT10 73.28 76.43 78.69 81.56 83.65
FT100 71.83 77.55 80.16 82.23 83.58
CR10 74.36 78.60 80.02 81.28 84.94
CR100 73.03 78.41 80.48 82.42 85.34""",
    "CLIP SVHN": """
LP 59.24 57.25 56.32 58.35 63.44
FT1 55.20 61.73 64.91 64.70 65.76
FT10 61.24 65.89 68.61 70.89 78.22
FT100 65.23 72.34 75.13 77.20 80.13
CR10 62.87 67.56 70.16 72.23 78.72
CR100 65.30 72.61 75.34 77.64 82.50""",
    "CLIP GTSRB": """
LP 71.20 83.97 85.31 86.34 86.56
FT1 77.18 87.65 88.56 88.76 89.83
FT10 84.55 88.74 89.11 89.52 90.74
FT100 86.28 90.50 90.83 91.15 91.89
CR10 84.84 89.53 89.44 91.35 92.01
CR100 87.24 90.86 91.29 92.11 92.65""",
    "MoCo v3 CIFAR-10": """
LP 91.44 93.51 94.11 94.22 95.82
FT1 89.93 94.21 95.15 95.80 96.12
FT10 90.82 93.24 94.59 95.48 96.17
FT100 90.84 93.05 94.23 95.37 97.01
CR10 90.73 94.28 95.43 95.83 96.71
CR100 91.04 94.00 95.29 95.72 96.86""",
    "MoCo v3 SVHN": """
LP 39.40 50.50 54.61 57.66 61.92
FT1 38.82 48.15 51.03 52.07 56.19
FT10 45.00 52.61 54.45 57.05 65.36
FT100 45.70 54.51 57.76 61.13 69.10
CR10 46.53 55.59 57.32 59.20 66.29
CR100 46.27 55.70 59.45 61.97 70.22""",
    "MoCo v3 GTSRB": """
LP 48.52 66.68 71.69 72.27 75.37
FT1 52.54 72.19 73.75 73.30 75.16
FT10 58.68 75.21 75.87 76.75 76.45
FT100 61.65 75.22 76.49 77.67 78.05
CR10 59.28 75.35 77.38 80.52 81.28
CR100 63.61 76.70 77.85 80.13 80.92""",
    "SimCSE IMDB": """
LP 79.72 83.08 81.48 84.87 86.49
FT 82.54 87.78 87.96 89.49 92.31
CR 84.48 90.12 90.41 90.79 92.85""",
    "SimCSE AGNews": """
LP 85.52 86.78 86.75 87.62 87.76
FT 88.74 90.76 91.22 92.36 93.57
CR 89.20 91.22 91.33 92.45 93.94""",
}


def _read(text: str) -> dict[str, tuple[float, ...]]:
    rows = (line.split() for line in text.strip().splitlines())
    return {name: tuple(float(cell) for cell in cells) for name, *cells in rows}


FOUNDATION_FEW = {name: _read(text) for name, text in _FOUNDATION_FEW.items()}
