"""Whole models at batch 1 with random weights: what `tests/models/zoo.py` builds, at the sizes people use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from benchmarks.cpu.case import Arrays, Case

SIX = {"bert": (1, 64), "gpt2": (1, 64), "resnet18": (1, 224), "vit": (1, 224), "unet": (1, 128), "whisper_encoder": (1, 3000)}
"""Name in the zoo: batch, and the length of the text, the side of the picture or the frames of the sound."""
MORE = {"resnet50": (1, 224), "mobilenet_v2": (1, 224)}
QUICK = ("bert", "resnet18")


def cases() -> Iterator[Case]:
    for name, (batch, size) in {**SIX, **MORE}.items():
        yield model(name, batch, size)


def model(name: str, batch: int, size: int) -> Case:
    images = name in ("resnet18", "resnet50", "mobilenet_v2", "unet", "vit")

    def inputs() -> Arrays:
        return {k: v.numpy() for k, v in built(name, batch, size)[1].items()}

    def write(path: str) -> None:
        import logging
        import warnings

        import torch

        module, given = built(name, batch, size)
        logging.disable(logging.WARNING)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (), path, kwargs=given, dynamo=True, output_names=["y"], verbose=False)

    return Case(
        name, "model", write, inputs, lambda: built(name, batch, size)[0], images=images, quick=name in QUICK
    )  # fmt: skip


@cache
def built(name: str, batch: int, size: int) -> tuple[Any, Any]:
    """The module in eval mode and its inputs."""
    import torch

    from tests.models.zoo import ZOO, image, redraw

    torch.manual_seed(0)
    architecture = ZOO[name]
    module = architecture.build().eval()
    if "seq" in architecture.sizes:
        given = architecture.inputs({"batch": batch, "seq": size})
    elif name == "whisper_encoder":
        given = architecture.inputs({"batch": batch})
    else:
        given = image("pixel_values", 3, size, size)({"batch": batch})
    has_statistics = any(isinstance(m, torch.nn.BatchNorm2d) for m in module.modules())
    seen = image("pixel_values", 3, size, size)({"batch": 8}) if has_statistics else given
    return redraw(module, seen), given
