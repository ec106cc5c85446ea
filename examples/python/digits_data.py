"""The handwritten digits that come with scikit-learn: split in two, and exported for C++."""

import csv
import dataclasses
import pathlib

import sklearn.datasets
import torch

TRAIN_COUNT = 1437  # of 1797 pictures; the rest is for testing
LARGEST_PIXEL = 16


@dataclasses.dataclass
class Digits:
    """Pictures as rows of 64 brightnesses in [0, 1], labels from 0 to 9."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor

    def to(self, device: str) -> "Digits":
        """The same digits on `device`."""
        fields = dataclasses.fields(self)
        return Digits(*(getattr(self, field.name).to(device) for field in fields))


def load_digits() -> Digits:
    """Loads and splits the digits; the same split every time."""
    source = sklearn.datasets.load_digits()
    images = torch.tensor(source.data, dtype=torch.float32) / LARGEST_PIXEL
    labels = torch.tensor(source.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:TRAIN_COUNT], order[TRAIN_COUNT:]
    return Digits(images[train], labels[train], images[test], labels[test])


def write_digits(path: pathlib.Path, digits: Digits) -> None:
    """Writes one line per picture: train or test, the label, 64 pixels from 0 to 16."""
    parts = [
        ("train", digits.train_images, digits.train_labels),
        ("test", digits.test_images, digits.test_labels),
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["split", "label", *(f"pixel_{index}" for index in range(64))])
        for split, images, labels in parts:
            pixels = (images * LARGEST_PIXEL).int().tolist()
            writer.writerows([split, label, *row] for label, row in zip(labels.tolist(), pixels, strict=True))
