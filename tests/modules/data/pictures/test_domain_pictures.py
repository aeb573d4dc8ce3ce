"""Pictures of several domains: read by domain, split, batched, augmented, standardised."""

import colorsys
import itertools

import numpy as np
import pytest
import torch
from PIL import Image
from publicfiles import write_public

from featurelab.modules.data import (
    BalancedBatches,
    DatasetMissing,
    HeldOutDomain,
    Maps,
    PublicImages,
    TensorData,
    check_dataset,
    crop_and_jitter,
    from_folders,
    load_split,
    painted_digits,
    permuted_labels,
    public_domains,
)
from featurelab.modules.data.public.sources import dataset_source
from featurelab.modules.data.public.sources import domains as places
from featurelab.modules.data.public.streaming import IMAGENET_MEAN, IMAGENET_STD

BENCHMARKS = ("vlcs", "pacs", "office_home", "terra_incognita", "domain_net")


def made(sizes=(20, 30, 25, 10)):
    """Pictures whose first pixel says which domain they are of, and whose second which row."""
    found = {}
    for place, n in enumerate(sizes):
        x = torch.zeros(n, 3, 4, 4, dtype=torch.uint8)
        x[:, :, 0, 0], x[:, 0, 0, 1] = place, torch.arange(n, dtype=torch.uint8)
        found["abcd"[place]] = (x, torch.arange(n) % 3)
    return found


def task(held_out="b", **options):
    return HeldOutDomain(made(), held_out, **({"batch_size": 4, "seed": 0} | options))


def owners(x):
    return x[:, 0, 0, 0].tolist()


def test_each_training_domain_is_split_and_the_other_one_is_kept_whole():
    data = task()
    assert data.training == ("a", "c", "d")
    assert [owners(data.pictures("train")).count(place) for place in range(4)] == [16, 0, 20, 8]
    assert [owners(data.pictures("validation")).count(place) for place in range(4)] == [4, 0, 5, 2]
    assert torch.equal(data.pictures("test"), made()["b"][0])
    assert (data.describe()["held_out"], data.describe()["n_validation"]) == ("b", 11)
    rows = {(x[0, 0, 0].item(), x[0, 0, 1].item()) for part in ("train", "validation") for x in data.pictures(part)}
    assert len(rows) == 55  # none twice, none lost
    again, other = task(), task(seed=1)
    assert torch.equal(again.pictures("train"), data.pictures("train"))
    assert not torch.equal(other.pictures("train"), data.pictures("train"))
    for part in ("train", "validation", "test"):
        assert torch.equal(data.labels[part], data.pictures(part)[:, 0, 0, 1].long() % 3)


def test_the_digest_is_that_of_the_same_tensors_in_memory():
    data = task()
    pairs = [(data.pictures(part), data.labels[part]) for part in ("train", "test")]
    assert data.digest(chunk=7) == TensorData(*pairs).digest()
    assert data.describe() | TensorData(*pairs, name="domains").describe() == data.describe()


def test_batches_have_as_many_pictures_of_each_training_domain_and_change_with_the_epoch():
    data = task(batch_size=3)
    loader, (mean, std) = data.train_dataloader(), torch.tensor([IMAGENET_MEAN, IMAGENET_STD])[..., None, None]
    epochs = [list(loader), list(loader)]
    assert len(epochs[0]) == len(loader) == 44 // 9
    for x, y in itertools.chain(*epochs):
        numbers = (255 * (x * std + mean)).round()
        assert sorted(owners(numbers)) == [0.0] * 3 + [2.0] * 3 + [3.0] * 3
        assert torch.equal(y, numbers[:, 0, 0, 1].long() % 3)
    assert not torch.equal(epochs[0][0][0], epochs[1][0][0])


def test_two_workers_see_together_what_one_sees():
    data = task(augment=crop_and_jitter())
    whole = next(iter(data.train_dataloader()))
    shares = []
    for rank in range(2):
        loader = data.train_dataloader()
        loader.batches = BalancedBatches(data._rows["train"][0], 3, 4, order_seed=0, rank=rank, world_size=2)
        shares.append(next(iter(loader)))
    for place in range(2):
        assert torch.equal(torch.cat([share[place] for share in shares]), whole[place])


def test_what_networks_see_is_standardised_as_imagenet():
    x = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    slow = (x.numpy().transpose(0, 2, 3, 1) / 255 - mean) / std
    assert task().inputs(x).numpy().transpose(0, 2, 3, 1) == pytest.approx(slow, abs=1e-5)
    batch = next(iter(task().val_dataloader()))
    assert torch.equal(batch[0], task().inputs(task().pictures("test", slice(4))))


def test_permuted_labels_are_those_of_training_alone():
    plain = task()
    with permuted_labels(0):
        data = task()
    one, other = data.labels, plain.labels
    assert not torch.equal(one["train"], other["train"])
    assert torch.equal(one["train"].sort().values, other["train"].sort().values)
    assert torch.equal(one["validation"], other["validation"])


def test_domains_that_cannot_be_split_or_held_out_are_refused():
    with pytest.raises(ValueError, match="must be one of at least two domains"):
        task("e")
    with pytest.raises(ValueError, match="leaves one part"):
        task(share=0.01)


@pytest.mark.parametrize("kind", ["string", "class"])
def test_public_pictures_are_read_by_domain_and_resized(tmp_path, kind):
    datasets = pytest.importorskip("datasets")
    names = ["art_painting", "cartoon", "photo", "sketch"]
    column = {"string": datasets.Value("string"), "class": datasets.ClassLabel(names=names)}[kind]
    write_public(tmp_path, "pacs", domain=column)
    found = public_domains("pacs", 16, root=tmp_path)
    assert list(found) == names
    rows = load_split("pacs", "train", root=tmp_path)
    for place, (x, y) in enumerate(found.values()):
        own = [row for row in range(len(rows)) if places(rows, dataset_source("pacs"))[row] == place]
        assert x.shape == (7, 3, 16, 16)
        assert y.tolist() == [rows[row]["label"] for row in own]
        slow = [np.array(rows[row]["image"].resize((16, 16), Image.Resampling.BILINEAR)) for row in own]
        assert np.array_equal(x.permute(0, 2, 3, 1).numpy(), np.stack(slow))
    assert check_dataset("pacs", root=tmp_path)["splits"]["train"]["rows"] == 28
    with pytest.raises(ValueError, match="has no domains"):
        public_domains("mnist", 16, root=tmp_path)


def test_pictures_too_many_for_memory_are_decoded_once_into_files(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_public(tmp_path, "domain_net", {"train": 6, "test": 1})
    expected, found = (public_domains("domain_net", 8, root=tmp_path, most=most) for most in (10**9, 1000))
    monkeypatch.setattr("featurelab.modules.data.pictures.domains.images", None)  # not decoded again
    again = public_domains("domain_net", 8, root=tmp_path, most=1000)
    for domain, (x, y) in expected.items():
        for other in (found, again):
            assert torch.equal(other[domain][0], x)
            assert torch.equal(other[domain][1], y)
    assert len(list((tmp_path / "cache" / "featurelab").iterdir())) == 6
    one, other = (HeldOutDomain(some, "real", batch_size=2, seed=0) for some in (expected, found))
    assert one.digest() == other.digest()


def test_maps_of_a_frozen_network_are_computed_once_and_seen_as_they_are(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_public(tmp_path, "pacs")
    made = []

    def mean(factor):
        def network(x):
            return factor * x.float().mean((2, 3), keepdim=True)

        return Maps(lambda: made.append(factor) or network, key=f"mean {factor}")

    pictures = public_domains("pacs", 8, root=tmp_path)
    once, again, other = (public_domains("pacs", 8, root=tmp_path, maps=mean(f)) for f in (1.0, 1.0, 2.0))
    assert made == [1.0] * 4 + [2.0] * 4, "once for each domain"
    for domain, (x, y) in pictures.items():
        assert once[domain][0].dtype == torch.float16
        torch.testing.assert_close(once[domain][0].float(), x.float().mean((2, 3), keepdim=True), rtol=1e-3, atol=0)
        assert torch.equal(again[domain][0], once[domain][0])
        assert torch.equal(other[domain][0], 2 * once[domain][0])
        assert torch.equal(once[domain][1], y)
    held = HeldOutDomain(once, "photo", batch_size=2, seed=0)
    x, _ = next(iter(held.train_dataloader()))
    assert (x.shape, x.dtype, x.max() > 10) == ((6, 3, 1, 1), torch.float32, True)
    assert torch.equal(held.inputs(held.pictures("test")), once["photo"][0].float())
    assert held.describe()["dtype"] == "float16"
    assert held.digest() != HeldOutDomain(other, "photo", batch_size=2, seed=0).digest()
    with pytest.raises(ValueError, match="only pictures are augmented"):
        HeldOutDomain(once, "photo", batch_size=2, seed=0, augment=crop_and_jitter())


def test_a_domain_that_is_not_known_is_named(tmp_path):
    datasets = pytest.importorskip("datasets")
    write_public(tmp_path, "pacs")
    (file,) = (tmp_path / "pacs").iterdir()
    table = datasets.Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "cache"))
    table = table.map(lambda row: {"domain": row["domain"].replace("sketch", "etching")})
    table.to_parquet(file)
    with pytest.raises(ValueError, match="'etching' is not one of its domains"):
        public_domains("pacs", 16, root=tmp_path)


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("vlcs", "CLSV"),
        ("pacs", "acps"),
        ("office_home", "acpr"),
        ("terra_incognita", "llll"),
        ("domain_net", "cipqrs"),
    ],
)
def test_each_benchmark_is_read_by_domain_in_the_order_of_the_tables(tmp_path, name, letters):
    pytest.importorskip("datasets")
    write_public(tmp_path, name)
    found, entry = public_domains(name, 8, root=tmp_path), dataset_source(name)
    assert tuple(found) == entry.domains
    assert "".join(domain[0] for domain in entry.domains) == letters
    assert set(torch.cat([y for _, y in found.values()]).tolist()) == set(range(entry.classes))


def test_pictures_in_folders_become_a_dataset(tmp_path):
    pytest.importorskip("datasets")
    for place, (domain, label) in enumerate([("caltech101", "dog"), ("sun09", "bird"), ("LabelMe", "dog")]):
        (tmp_path / "VLCS" / domain / label).mkdir(parents=True)
        picture = np.full((6, 9, 3), 50 * place, dtype=np.uint8)
        Image.fromarray(picture).save(tmp_path / "VLCS" / domain / label / "1.png")
    with pytest.raises(DatasetMissing, match=r"cannot be fetched .* put parquet files"):
        load_split("vlcs", "train", root=tmp_path)
    assert from_folders("vlcs", tmp_path / "VLCS", root=tmp_path, chunk=2) == 3
    found = public_domains("vlcs", 6, root=tmp_path)
    classes = {domain: y.tolist() for domain, (_, y) in found.items()}
    assert classes == {"Caltech101": [3], "LabelMe": [3], "SUN09": [0], "VOC2007": []}
    assert (found["SUN09"][0] == 50).all()
    assert (found["LabelMe"][0] == 100).all()
    (tmp_path / "VLCS" / "SUN09" / "fish").mkdir(parents=True)
    with pytest.raises(ValueError, match="fish belongs to no known domain and class"):
        from_folders("vlcs", tmp_path / "VLCS", root=tmp_path)
    with pytest.raises(ValueError, match="no pictures"):
        from_folders("pacs", tmp_path / "nothing", root=tmp_path)
    with pytest.raises(ValueError, match="no domains"):
        from_folders("mnist", tmp_path, root=tmp_path)
    with pytest.raises(ValueError, match="has no test split"):
        PublicImages("vlcs", 1, 1, seed=0, root=tmp_path)


def test_colours_of_painted_digits_agree_with_the_label_as_often_as_asked():
    found = painted_digits({"tied": 1.0, "loose": 0.0}, 16, noise=0.0, seed=0)
    assert sum(len(x) for x, _ in found.values()) == 1797
    shares = {}
    for name, (x, y) in found.items():
        brightest = x.flatten(2).amax(2).double() / 255
        hues = [round(10 * colorsys.rgb_to_hsv(*colour)[0]) % 10 for colour in brightest.tolist()]
        shares[name] = np.mean(np.array(hues) == y.numpy())
    assert shares["tied"] == 1.0
    assert shares["loose"] == pytest.approx(0.1, abs=0.04)
    with pytest.raises(ValueError, match="probabilities"):
        painted_digits({"a": 1.2}, seed=0)


def shown(x, **numbers):
    """`x` with these of the ten numbers, the others such that nothing changes."""
    still = {
        "area": 1.0,
        "proportion": 0.5,
        "top": 0.5,
        "left": 0.5,
        "side": 0.9,
        "brightness": 0.5,
        "contrast": 0.5,
        "saturation": 0.5,
        "hue": 0.5,
        "grey": 0.9,
    } | numbers
    return crop_and_jitter()(x, torch.tensor([list(still.values())] * len(x), dtype=x.dtype))


def test_each_number_of_the_augmentation_does_what_it_says():
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(shown(x), x, atol=1e-12)
    assert torch.allclose(shown(x, side=0.1), x.flip(3), atol=1e-12)
    assert torch.allclose(shown(x, brightness=0.25), 0.85 * x, atol=1e-12)
    luma = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    assert torch.allclose(shown(x, grey=0.0), luma.expand_as(x), atol=1e-12)
    mean = luma.mean((1, 2, 3), keepdim=True)
    assert torch.allclose(shown(x, contrast=0.0), mean + 0.7 * (x - mean), atol=1e-12)
    assert torch.allclose(shown(x, saturation=0.0), luma + 0.7 * (x - luma), atol=1e-12)
    third = crop_and_jitter(1.0, jitter=1 / 3, grey=0.0)(0.2 + 0.4 * x, torch.tensor([[0.5] * 8 + [1.0, 0.5]] * 2))
    assert torch.allclose(third, (0.2 + 0.4 * x).roll(1, 1), atol=1e-7)


def test_crops_are_those_of_a_picture_resized_by_hand():
    rows = torch.arange(16.0, dtype=torch.float64)[:, None].expand(3, 16, 16)[None] / 16
    part = crop_and_jitter(0.25, jitter=0.0, grey=0.0)(rows, torch.tensor([[0.0, 0.5, 1.0, 0.0] + [0.9] * 6]))
    # half the sides, at the bottom: rows 8 to 16, in steps of half a row
    expected = (8 + (torch.arange(16) + 0.5) / 2 - 0.5).clamp(max=15) / 16
    assert torch.allclose(part[0, 0, :, 3], expected.double(), atol=1e-6)
    with pytest.raises(ValueError, match="pictures must be"):
        crop_and_jitter()(torch.rand(2, 1, 8, 8), torch.rand(2, 10))
    with pytest.raises(ValueError, match="0 < scale"):
        crop_and_jitter(0.0)
