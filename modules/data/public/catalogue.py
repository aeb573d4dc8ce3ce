"""The public datasets of pictures, and how their columns become inputs and targets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from .names import (
    CIFAR10,
    CIFAR100,
    CIFAR100_COARSE,
    DIGITS,
    EMOTIONS,
    FASHION,
    IMAGENET_BIRDS,
    LETTERS,
    OFFICE_HOME,
    PACS,
    STL10,
    TERRA_INCOGNITA,
    VLCS,
)

Targets = Literal["labels", "coarse", "one_hot", "signs"]
Pixels = Literal["unit", "per_pixel", "per_channel"]


@dataclass(frozen=True)
class DatasetSource:
    """Where a dataset lives on the hub, and how its columns become inputs and targets."""

    name: str
    repo_id: str | None  # None: we know of no repository with such columns
    config: str | None  # None: the repository has one
    splits: MappingProxyType[str, int]  # split -> rows on the hub, 0 where we do not know
    label: str  # column; empty where rows have no classes
    classes: int
    needs: str
    url: str  # licence and citation
    size: int = 0  # pictures are resized to size x size
    texts: tuple[str, ...] = ()  # columns of text, or of lists of texts, for a dataset that has no pictures
    image: str = "image"  # column; `load_split` calls it `image`
    test: str = "test"  # the split that is used as the test set
    channels: int = 3
    targets: Targets = "labels"
    pixels: Pixels = "unit"
    balanced: bool = False  # subsets take as many rows of every class
    names: tuple[str, ...] | None = None  # of the classes, in the order of the labels
    known: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))  # where only some names are known
    coarse: str | None = None  # column of super-classes
    coarse_names: tuple[str, ...] | None = None
    domain: str | None = None  # column
    domains: tuple[str, ...] = ()  # in the order in which papers hold them out

    @property
    def columns(self) -> list[str]:
        return [*(self.texts or ("image",)), *filter(None, (self.label, self.coarse, self.domain))]


def _splits(**rows: int) -> MappingProxyType[str, int]:
    return MappingProxyType(rows)


SOURCES = {
    source.name: source
    for source in (
        DatasetSource(
            name="cars196",
            repo_id="tanganke/stanford_cars",
            config=None,
            splits=_splits(train=8_144, test=8_041),
            label="label",
            size=224,
            classes=196,
            needs="6 GB of downloads; non-commercial research only",
            url="https://doi.org/10.1109/ICCVW.2013.77",
        ),
        DatasetSource(
            name="celeba",
            repo_id="flwrlabs/celeba",
            config="img_align+identity+attr",
            splits=_splits(train=162_770, valid=19_867, test=19_962),
            label="Eyeglasses",
            size=96,
            targets="signs",
            classes=2,
            balanced=True,
            needs="12 GB of downloads; non-commercial research only",
            url="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        ),
        DatasetSource(
            name="cifar10",
            repo_id="uoft-cs/cifar10",
            config="plain_text",
            splits=_splits(train=50_000, test=10_000),
            image="img",
            label="label",
            size=32,
            classes=10,
            names=CIFAR10,
            needs="0.15 GB of downloads; licence not stated",
            url="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        DatasetSource(
            name="cifar100",
            repo_id="uoft-cs/cifar100",
            config="cifar100",
            splits=_splits(train=50_000, test=10_000),
            image="img",
            label="fine_label",
            size=32,
            classes=100,
            names=CIFAR100,
            coarse="coarse_label",
            coarse_names=tuple(CIFAR100_COARSE),
            needs="0.15 GB of downloads; licence not stated",
            url="https://www.cs.toronto.edu/~kriz/cifar.html",
        ),
        DatasetSource(
            name="cinic10",
            repo_id="flwrlabs/cinic10",
            config=None,
            splits=_splits(train=90_000, validation=90_000, test=90_000),
            label="label",
            size=32,
            classes=10,
            names=CIFAR10,
            needs="0.8 GB of downloads; licence CC BY 4.0",
            url="https://arxiv.org/abs/1810.03505",
        ),
        DatasetSource(
            name="cub200",
            repo_id="bentrevett/caltech-ucsd-birds-200-2011",
            config=None,
            splits=_splits(train=5_994, test=5_794),
            label="label",
            size=224,
            classes=200,
            needs="1.2 GB of downloads; non-commercial research only",
            url="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        ),
        DatasetSource(
            name="domain_net",
            repo_id="wltjr1007/DomainNet",
            config=None,
            splits=_splits(train=409_832, test=176_743),
            label="label",
            size=224,
            classes=345,
            domain="domain",
            domains=("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
            needs="19 GB of downloads; non-commercial research only; repository not tried from here",
            url="https://ai.bu.edu/M3SDA/",
        ),
        DatasetSource(
            name="emnist_digits",
            repo_id=None,
            config=None,
            splits=_splits(train=240_000, test=40_000),
            label="label",
            size=28,
            channels=1,
            classes=10,
            names=DIGITS,
            needs="the files of NIST; no repository with such columns is known to us",
            url="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        ),
        DatasetSource(
            name="emnist_letters",
            repo_id="tanganke/emnist_letters",
            config="emnist-letters",
            splits=_splits(train=124_800, test=20_800),
            label="label",
            size=28,
            channels=1,
            classes=26,
            names=LETTERS,
            needs="0.06 GB of downloads; licence not stated; repository not tried from here",
            url="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        ),
        DatasetSource(
            name="facescrub",
            repo_id=None,
            config=None,
            splits=_splits(train=141_130),
            test="train",
            label="label",
            size=48,
            classes=695,
            needs="links that its authors give; no repository with such columns is known to us; research use only",
            url="https://vintage.winklerbros.net/facescrub.html",
        ),
        DatasetSource(
            name="fashion_mnist",
            repo_id="zalando-datasets/fashion_mnist",
            config="fashion_mnist",
            splits=_splits(train=60_000, test=10_000),
            label="label",
            size=28,
            channels=1,
            classes=10,
            names=FASHION,
            needs="0.04 GB of downloads; MIT licence",
            url="https://github.com/zalandoresearch/fashion-mnist",
        ),
        DatasetSource(
            name="fer2013",
            repo_id=None,
            config=None,
            splits=_splits(train=28_709, test=3_589),
            label="label",
            size=48,
            channels=1,
            classes=7,
            names=EMOTIONS,
            needs="the files of the Kaggle challenge; no repository with such columns is known to us",
            url="https://arxiv.org/abs/1307.0414",
        ),
        DatasetSource(
            name="gtsrb",
            repo_id="tanganke/gtsrb",
            config=None,
            splits=_splits(train=26_640, test=12_630),
            label="label",
            size=32,
            classes=43,
            needs="1 GB of downloads; licence not stated; repository not tried from here",
            url="https://doi.org/10.1016/j.neunet.2012.02.016",
        ),
        DatasetSource(
            name="imagenet",
            repo_id="ILSVRC/imagenet-1k",
            config=None,
            splits=_splits(train=1_281_167, validation=50_000, test=100_000),
            test="validation",
            label="label",
            size=224,
            classes=1000,
            known=MappingProxyType(IMAGENET_BIRDS),
            needs="160 GB of downloads; its terms, accepted on the hub: non-commercial research; not tried from here",
            url="https://image-net.org/download.php",
        ),
        DatasetSource(
            name="imagenet32",
            repo_id="benjamin-paine/imagenet-1k-32x32",
            config=None,
            splits=_splits(train=1_281_167, validation=50_000),
            test="validation",
            label="label",
            size=32,
            classes=1000,
            needs="3 GB of downloads; the terms of ImageNet, non-commercial research only; not tried from here",
            url="https://arxiv.org/abs/1707.08819",
        ),
        DatasetSource(
            name="mnist",
            repo_id="ylecun/mnist",
            config="mnist",
            splits=_splits(train=60_000, test=10_000),
            label="label",
            size=28,
            channels=1,
            classes=10,
            names=DIGITS,
            needs="0.02 GB of downloads; licence CC BY-SA 3.0",
            url="http://yann.lecun.com/exdb/mnist/",
        ),
        DatasetSource(
            name="office_home",
            repo_id="flwrlabs/office-home",
            config=None,
            splits=_splits(train=15_588),
            test="train",
            label="label",
            size=224,
            classes=65,
            names=OFFICE_HOME,
            domain="domain",
            domains=("art", "clipart", "product", "real_world"),
            needs="1.2 GB of downloads; non-commercial research only; repository not tried from here",
            url="https://www.hemanthdv.org/officeHomeDataset.html",
        ),
        DatasetSource(
            name="pacs",
            repo_id="flwrlabs/pacs",
            config=None,
            splits=_splits(train=9_991),
            test="train",
            label="label",
            size=224,
            classes=7,
            names=PACS,
            domain="domain",
            domains=("art_painting", "cartoon", "photo", "sketch"),
            needs="0.2 GB of downloads; licence not stated; repository not tried from here",
            url="https://arxiv.org/abs/1710.03077",
        ),
        DatasetSource(
            name="stl10",
            repo_id="tanganke/stl10",
            config=None,
            splits=_splits(train=5_000, test=8_000),
            label="label",
            size=96,
            classes=10,
            names=STL10,
            needs="0.3 GB of downloads; licence not stated; repository not tried from here",
            url="https://cs.stanford.edu/~acoates/stl10/",
        ),
        DatasetSource(
            name="svhn",
            repo_id="ufldl-stanford/svhn",
            config="cropped_digits",
            splits=_splits(train=73_257, test=26_032),
            label="label",
            size=32,
            targets="one_hot",
            pixels="per_pixel",
            classes=10,
            names=DIGITS,
            needs="1.2 GB of downloads; non-commercial use only",
            url="http://ufldl.stanford.edu/housenumbers/",
        ),
        DatasetSource(
            name="terra_incognita",
            repo_id=None,
            config=None,
            splits=_splits(train=24_788),
            test="train",
            label="label",
            size=224,
            classes=10,
            names=TERRA_INCOGNITA,
            domain="domain",
            domains=("location_100", "location_38", "location_43", "location_46"),
            needs="DomainBed's folders, 2.4 GB, read by `data.from_folders`; no such repository is known to us",
            url="https://beerys.github.io/CaltechCameraTraps/",
        ),
        DatasetSource(
            name="tiny_imagenet",
            repo_id="zh-plus/tiny-imagenet",
            config=None,
            splits=_splits(train=100_000, valid=10_000),
            test="valid",
            label="label",
            size=64,
            classes=200,
            needs="0.16 GB of downloads; the terms of ImageNet, non-commercial research only",
            url="https://image-net.org/download.php",
        ),
        DatasetSource(
            name="vlcs",
            repo_id=None,
            config=None,
            splits=_splits(train=10_729),
            test="train",
            label="label",
            size=224,
            classes=5,
            names=VLCS,
            domain="domain",
            domains=("Caltech101", "LabelMe", "SUN09", "VOC2007"),
            needs="DomainBed's folders, 3.6 GB, read by `data.from_folders`; no such repository is known to us",
            url="https://doi.org/10.1109/ICCV.2013.208",
        ),
    )
}
