"""Missing data sets of torchvision: black images of the original size and number.

CIFAR10("data", train=True, download=True)[0]        # (image of 32 x 32 pixels, 0)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from flint.launching.stand_ins.missing import Made, StandIn
from flint.launching.stand_ins.words import PIXELS, image


@dataclass(frozen=True, slots=True)
class _Images:
    """Form of a data set.

    Attributes:
        number: of images for training.
        tests: of images for tests, or for validation.
        classes: number of classes.
        size: of an image in pixels, in both directions.
        mode: Pillow's name of the kind of pixels.
        held: how an object of the class holds all images (``data``) and classes, if it does.
    """

    number: int
    tests: int
    classes: int
    size: int
    mode: str = "RGB"
    held: str = ""


#: Class of torchvision -> the images of the data set, as its authors describe it.
_FORMS = {
    "CIFAR100": _Images(50_000, 10_000, 100, 32, held="NHWC"),
    "CIFAR10": _Images(50_000, 10_000, 10, 32, held="NHWC"),
    "EMNIST": _Images(697_932, 116_323, 62, 28, "L", held="NHW"),
    "MNIST": _Images(60_000, 10_000, 10, 28, "L", held="NHW"),
    "SVHN": _Images(73_257, 26_032, 10, 32, held="NCHW"),
    "STL10": _Images(5_000, 8_000, 10, 96, held="NCHW"),
    "ImageNet": _Images(1_281_167, 50_000, 1000, PIXELS),
    "Food101": _Images(75_750, 25_250, 101, PIXELS),
    # of arbitrary images: as many as in ImageNet
    "ImageFolder": _Images(1_281_167, 1_281_167, 1000, PIXELS),
    "DatasetFolder": _Images(1_281_167, 1_281_167, 1000, PIXELS),
}


def _length(self: Any) -> int:
    form: _Images = self.made_up
    return form.number


def _item(self: Any, index: int) -> tuple[Any, Any]:
    form: _Images = self.made_up
    if not 0 <= index < form.number:
        raise IndexError(index)
    target: Any = index % form.classes
    shown: Any = image((form.size, form.size), form.mode)
    if self.transform is not None:
        shown = self.transform(shown)
    if self.target_transform is not None:
        target = self.target_transform(target)
    return shown, target


def _made_up(kind: type) -> type:
    """A class of such objects, which processes that start anew get as well."""
    own = {"__len__": _length, "__getitem__": _item, "__reduce__": _reduced}
    return type(kind.__name__, (kind,), own)


def _reduced(self: Any) -> tuple[Any, ...]:
    return _again, (type(self).__base__,), vars(self)


def _again(kind: type) -> Any:
    made_up: Any = _made_up(kind)
    return made_up.__new__(made_up)


def _made(name: str, self: Any, *args: Any, **kwargs: Any) -> Made:
    """An object of a class of which ``name``, maybe a base, has found no data."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in reversed(type(self).__mro__)}
    kind = next(kind for kind in type(self).__mro__ if kind.__name__ in _FORMS)
    form = _FORMS[kind.__name__]
    given = inspect.signature(kinds[name].__init__).bind_partial(self, *args, **kwargs).arguments
    given |= given.get("kwargs", {})
    if given.get("train") is False or given.get("split") in ("test", "val"):
        form = replace(form, number=form.tests)
    classes = [f"class {number}" for number in range(form.classes)]
    known = {name: given.get(name) for name in ("root", "transform", "target_transform")}
    samples = _as_many([("", number) for number in range(form.classes)], form.number)
    vars(self).update(
        known,
        transforms=None,
        classes=classes,
        made_up=form,
        samples=samples,
        imgs=samples,
        class_to_idx={name: number for number, name in enumerate(classes)},
        targets=_as_many(range(form.classes), form.number),
    )
    vars(self).update(_held(form))
    self.__class__ = _made_up(type(self))
    what = f"{form.number:,} images of {form.size} x {form.size} pixels, {form.classes:,} classes"
    return None, f"{kind.__name__} in {known['root']}: {what}"


def _held(form: _Images) -> dict[str, Any]:
    """What an object of torchvision's that has read all its images holds."""
    sizes = {"N": form.number, "H": form.size, "W": form.size, "C": 3}
    targets = np.resize(np.arange(form.classes), form.number)
    if not form.held:
        return {}
    data = np.zeros([sizes[dim] for dim in form.held], np.uint8)
    if form.held == "NHW":  # MNIST and what is made like it hold tensors
        return {"data": torch.from_numpy(data), "targets": torch.from_numpy(targets)}
    return {"data": data, "labels": targets}


def _as_many(items: Sequence[Any], number: int) -> list[Any]:
    """That many items, all the same."""
    return list(items) * (number // len(items)) + list(items)[: number % len(items)]


STAND_INS = tuple(
    StandIn(
        "torchvision.datasets",
        f"{name}.__init__",
        functools.partial(_made, name),
        says=("Dataset not found", "Error downloading", "The archive"),
    )
    for name in _FORMS
)
