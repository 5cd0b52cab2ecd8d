"""Train the digits network with Tatami alone: one program makes a step (forward, gradient, AdamW) and updates its arrays in place.

    python examples/digits/train.py

Writes dumps/digits-training/: the step and the trained network as `.harp` texts, and picture.svg with the loss of each step and
the held-out images that the network mistakes. Data: `training.npz` and `held_out.npz`, the handwritten digits bundled with
scikit-learn (1,797 images of 8x8, 16 grey levels; the test set of the UCI "Optical Recognition of Handwritten Digits" data set by
E. Alpaydin and C. Kaynak, CC BY 4.0), every fifth image held out. `train_torch.py` trains the same network in PyTorch.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

import tatami as tt
from tatami.frontend.graph_api.tensor import Tensor
from tatami.harp.decompile import decompiled
from tatami.storage.dump import make_folder, write_bytes, write_text

HERE = Path(__file__).parent
OUT = Path("dumps/digits-training")
BATCH, EPOCHS = 64, 40
RATE, BETA1, BETA2, EPSILON, DECAY = 2e-3, 0.9, 0.999, 1e-8, 1e-2
MOMENTUM, NORM_EPSILON = 0.1, 1e-5
SHAPES = {
    "conv1": (16, 1, 3, 3), "scale1": (16,), "shift1": (16,),
    "conv2": (32, 16, 3, 3), "scale2": (32,), "shift2": (32,),
    "hidden": (64, 128), "hidden_bias": (64,), "last": (10, 64), "last_bias": (10,),
}  # fmt: skip
"""Parameters by name; the bias of a convolution would be lost in the normalisation after it."""
STATISTICS = {"mean1": (16,), "variance1": (16,), "mean2": (32,), "variance2": (32,)}
"""Means and variances of channels over many batches, by which the trained network normalises."""
Arrays = dict[str, np.ndarray]


def scores(x: Tensor, p: dict[str, Tensor], norms: dict[str, Tensor], training: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores [N, 10] of images, and the new statistics: those of the batch normalise in training."""
    new: dict[str, Tensor] = {}
    for k in "12":
        x = x.conv(p[f"conv{k}"], padding=[(1, 1), (1, 1)])
        mean, variance = norms[f"mean{k}"], norms[f"variance{k}"]
        if training:
            own_mean, own_variance = x.mean((0, 2, 3)), x.variance((0, 2, 3))
            new[f"mean{k}"] = mean * (1 - MOMENTUM) + own_mean * MOMENTUM
            new[f"variance{k}"] = variance * (1 - MOMENTUM) + own_variance * MOMENTUM
            mean, variance = own_mean, own_variance
        x = x.batch_norm(p[f"scale{k}"], p[f"shift{k}"], mean, variance, eps=NORM_EPSILON)
        x = x.relu().max_pool((2, 2))
    x = x.flatten(1).linear(p["hidden"], p["hidden_bias"]).relu()
    return x.linear(p["last"], p["last_bias"]), new


def step_graph() -> tt.Graph:
    """One step of AdamW. Inputs that it updates: parameters, two moments of each, statistics, the number of steps."""
    g = tt.Graph("step")

    def state(name: str, shape: tuple[int, ...]) -> Tensor:
        return g.input(name, shape, tt.fp32, role="param", mutability="mutable")

    image, label = g.input("image", (BATCH, 1, 8, 8), tt.fp32), g.input("label", (BATCH,), tt.i64)
    p = {name: state(name, shape) for name, shape in SHAPES.items()}
    norms = {name: state(name, shape) for name, shape in STATISTICS.items()}
    count = state("count", ())
    found, new = scores(image, p, norms, training=True)
    loss = -(found.log_softmax(1) * label.one_hot(10)).sum() * (1 / BATCH)
    g.output("loss", loss)
    t = count + 1.0
    first_bias, second_bias = 1.0 - BETA1**t, 1.0 - BETA2**t
    for (name, w), d in zip(p.items(), tt.gradient(g, loss, list(p.values())), strict=True):
        m, v = state(f"{name}.m", SHAPES[name]), state(f"{name}.v", SHAPES[name])
        m_new, v_new = m * BETA1 + d * (1 - BETA1), v * BETA2 + d * d * (1 - BETA2)
        g.update(m, m_new)
        g.update(v, v_new)
        way = m_new / first_bias / ((v_new / second_bias).sqrt() + EPSILON)
        g.update(w, w * (1 - RATE * DECAY) - way * RATE)
    for name, value in new.items():
        g.update(norms[name], value)
    g.update(count, t)
    return g


def network_graph(arrays: Arrays) -> tt.Graph:
    """The trained network, its parameters as constants."""
    g = tt.Graph("digits")
    image = g.input("image", ("N", 1, 8, 8), tt.fp32)
    p = {name: g.constant(arrays[name], name) for name in SHAPES}
    norms = {name: g.constant(arrays[name], name) for name in STATISTICS}
    g.output("probability", scores(image, p, norms, training=False)[0].softmax(1))
    return g


def initial(seed: int = 0) -> Arrays:
    """Parameters within 1/sqrt(fan-in), scales 1, everything else 0; variances 1."""
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for name, shape in SHAPES.items():
        bound = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else float(name.startswith("scale"))
        array = rng.uniform(-bound, bound, shape) if len(shape) > 1 else np.full(shape, bound)
        arrays[name] = array.astype(np.float32)
        arrays[f"{name}.m"], arrays[f"{name}.v"] = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for name, shape in STATISTICS.items():
        arrays[name] = np.full(shape, float(name.startswith("variance")), np.float32)
    arrays["count"] = np.zeros((), np.float32)
    return arrays


def train(epochs: int = EPOCHS) -> tuple[Arrays, list[float]]:
    """The trained arrays, and the loss of each step."""
    data = np.load(HERE / "training.npz")
    images, labels = (data["image"] / 16.0).astype(np.float32)[:, None], data["label"].astype(np.int64)
    step, arrays = tt.compile(step_graph()), initial()
    rng, losses = np.random.default_rng(0), []
    batches = len(images) // BATCH
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=epochs * batches)
        for _ in range(epochs):
            order = rng.permutation(len(images))
            for k in range(batches):
                rows = order[k * BATCH : (k + 1) * BATCH]
                losses.append(float(step(image=images[rows], label=labels[rows], **arrays)["loss"]))
                bar.update(task, advance=1, description=f"loss {losses[-1]:.4f}")
    return arrays, losses


def picture(losses: list[float], images: np.ndarray, labels: np.ndarray, probability: np.ndarray) -> str:
    """An SVG document: the loss of each step on a logarithmic scale, and the mistaken images with what was read and what is."""
    wrong = np.flatnonzero(probability.argmax(1) != labels)
    logs = np.log10(np.maximum(losses, 1e-5))
    low, high = float(logs.min()), float(logs.max())
    points = " ".join(
        f"{60 + 560 * k / max(len(logs) - 1, 1):.1f},{20 + 160 * (high - y) / max(high - low, 1e-9):.1f}"
        for k, y in enumerate(logs)
    )
    parts = [
        f'<polyline points="{points}" fill="none" stroke="#2060a0"/>',
        f'<text x="4" y="26">{10**high:.2g}</text><text x="4" y="184">{10**low:.2g}</text>',
        f'<text x="60" y="204">loss of {len(losses)} steps; {len(wrong)} of {len(labels)} held-out images mistaken:</text>',
    ]
    for k, i in enumerate(wrong[:12]):
        x, y = 60 + 48 * k, 216
        for row, column in np.ndindex(8, 8):
            grey = 255 - int(255 * images[i, 0, row, column])
            parts.append(
                f'<rect x="{x + 5 * column}" y="{y + 5 * row}" width="5" height="5" fill="rgb({grey},{grey},{grey})"/>'
            )
        parts.append(f'<text x="{x}" y="{y + 56}">{probability[i].argmax()} is {labels[i]}</text>')
    body = "\n".join(parts)
    style = "font-family='sans-serif' font-size='12'"
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="650" height="290" {style}>\n{body}\n</svg>\n'


def main() -> None:
    start = time.perf_counter()
    arrays, losses = train()
    seconds = time.perf_counter() - start
    held_out = np.load(HERE / "held_out.npz")
    images, labels = held_out["image"], held_out["label"]
    network = network_graph(arrays)
    probability = tt.compile(network)(image=images)["probability"]
    accuracy = float((probability.argmax(1) == labels).mean())
    make_folder(OUT)
    for name, graph in (("step", step_graph()), ("network", network)):
        found = decompiled(graph)
        write_text(OUT / f"{name}.harp", found.text)
        if found.constants:
            write_bytes(OUT / f"{name}.npz", found.archive())
    write_text(OUT / "picture.svg", picture(losses, images, labels, probability))
    print(f"{len(losses)} steps in {seconds:.1f} s, compilation included; loss {losses[0]:.2f} to {losses[-1]:.4f}")
    print(f"accuracy on {len(labels)} held-out images: {accuracy:.4f}")
    print(f"{OUT}/: step.harp, network.harp, picture.svg")
    if accuracy < 0.97:
        sys.exit(1)


if __name__ == "__main__":
    main()
