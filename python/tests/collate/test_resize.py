"""Slots that resize images: the pixels are those of Pillow and of torch, in threads and in processes."""

from __future__ import annotations

from typing import Any

import batchloom as bl
import numpy
import pytest
import torch

SIZES = [(30, 40, 7, 11), (7, 11, 30, 40), (20, 9, 20, 30), (300, 400, 224, 224)]


class Images:
    """Images, one a sample."""

    def __init__(self, images: list[Any]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, sample: int) -> dict[str, Any]:
        return {"image": self.images[sample]}


def resized(images: list[Any], resize: bl.Resize, workers: str = "threads", **field: Any) -> Any:
    """Return the batch of all images."""
    dataset = bl.MapDataset(Images(images), workers=workers)
    fields = {"image": bl.Field(slot=resize, **field)}
    (batch,) = bl.DataLoader(dataset, len(images), output="numpy", fields=fields)
    return batch["image"]


def noise(height: int, width: int, *channels: int) -> Any:
    return numpy.random.default_rng(height * width).integers(0, 256, (height, width, *channels), "uint8")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [(), (3,)])
@pytest.mark.parametrize("filter", ["nearest", "bilinear", "bicubic"])
def test_resizes_as_pillow_does(filter: Any, channels: tuple[int, ...], size: tuple[int, ...]) -> None:
    """Bytes differ from Pillow's by one level at most, as both round between two passes, in another order.

    Values stay away from 0 and 255: cut off between the passes, curves differ by more (14 levels in noise of 0 to 255).
    The nearest pixel is either one where two are equally near.
    """
    pillow = pytest.importorskip("PIL.Image")
    height, width, to_height, to_width = size
    image = noise(height, width, *channels) // 2 + 64
    found = resized([image], bl.Resize(to_height, to_width, filter=filter))[0]
    way = getattr(pillow.Resampling, filter.upper())
    expected = numpy.asarray(pillow.fromarray(image).resize((to_width, to_height), way))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    difference = numpy.abs(found.astype(int) - expected.astype(int))
    if filter == "nearest":
        difference = difference[one_is_nearest(height, to_height)][:, one_is_nearest(width, to_width)]
    assert difference.max() <= (filter != "nearest")


def one_is_nearest(extent: int, to: int) -> Any:
    """Return whether each of ``to`` pixels has one nearest among ``extent``: its center is on no edge."""
    return (2 * numpy.arange(to) + 1) * extent % (2 * to) != 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize(("filter", "antialias"), [("bilinear", True), ("bilinear", False), ("bicubic", True)])
def test_resizes_as_torch_does(filter: Any, antialias: bool, channels: Any, size: tuple[int, ...]) -> None:
    """Floats are those of torch in float64; torch's own float32 differs from these by up to 2e-5."""
    height, width, to_height, to_width = size
    image = noise(height, width, 3).astype("float32") / 255
    first = torch.from_numpy(image).permute(2, 0, 1)
    interpolate = torch.nn.functional.interpolate
    expected = interpolate(first[None].double(), size=(to_height, to_width), mode=filter, antialias=antialias)
    given = first.numpy() if channels == "first" else image
    resize = bl.Resize(to_height, to_width, filter=filter, antialias=antialias, channels=channels, to="first")
    assert numpy.abs(resized([given], resize) - expected.numpy()).max() < 1e-6


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_images_of_several_sizes_share_a_batch(workers: str) -> None:
    images = [noise(20 + sample, 30 - sample, 3) for sample in range(6)]
    resize = bl.Resize(16, 16, to="first")
    found = resized(images, resize, workers)
    expected = numpy.stack([resized([image], bl.Resize(16, 16))[0].transpose(2, 0, 1) for image in images])
    assert numpy.array_equal(found, expected)
    found = resized(images, resize, dtype="float32", scale=1 / 255)
    assert found.dtype == numpy.float32
    numpy.testing.assert_allclose(found, expected / numpy.float32(255), rtol=1e-6)


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(bl.Error, match=r"field image of sample 1 is uint8\[0, 4, 3\], and its slot resizes images"):
        resized([noise(3, 4, 3), noise(0, 4, 3)], bl.Resize(2, 2))
    with pytest.raises(bl.Error, match=r"is float64\[3, 4\], and its slot resizes images; expected uint8 or float32"):
        resized([noise(3, 4).astype("float64")], bl.Resize(2, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 0}, "height is 0"),
        ({"filter": "area"}, "filter is 'area'"),
        ({"antialias": 1}, "antialias is 1; expected True or False"),
        ({"channels": "middle"}, "channels is 'middle'"),
        ({"to": "middle"}, "to is 'middle'"),
    ],
)
def test_arguments_that_do_not_hold_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(bl.ArgumentError, match=message):
        bl.Resize(**{"height": 2, "width": 2, **options})


def test_shows_its_arguments() -> None:
    shown = "Resize(2, 3, filter='bilinear', antialias=True, channels='last', to='first')"
    assert repr(bl.Resize(2, 3, to="first")) == shown
