"""Train the digits network in PyTorch and export it to ONNX with a symbolic batch; `train.py` trains it without PyTorch.

    pip install torch==2.13.0 scikit-learn onnx onnxscript
    python examples/digits/train_torch.py

Data: the handwritten digits bundled with scikit-learn (1,797 images of 8x8, 16 grey levels; the test set of the UCI
"Optical Recognition of Handwritten Digits" data set by E. Alpaydin and C. Kaynak, CC BY 4.0). The split is fixed:
every fifth image is held out and written next to the model with its label, the rest trains the network.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn

HERE = Path(__file__).parent


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
        nn.Softmax(dim=1),
    )


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    held_out = np.arange(len(images)) % 5 == 0
    x, y = torch.from_numpy(images[~held_out]), torch.from_numpy(labels[~held_out])

    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    for _ in range(40):
        for batch in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            loss = nn.functional.nll_loss(torch.log(model(x[batch]) + 1e-9), y[batch])
            loss.backward()
            optimiser.step()

    model.eval()
    test = torch.from_numpy(images[held_out])
    with torch.no_grad():
        accuracy = (model(test).argmax(1).numpy() == labels[held_out]).mean()
    print(f"accuracy on {held_out.sum()} held-out images: {accuracy:.4f}")

    program = torch.onnx.export(
        model,
        (test[:2],),
        input_names=["image"],
        output_names=["probability"],
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("N")},),
        optimize=False,
        verbose=False,
    )
    exported = program.model_proto
    for part in (
        *exported.graph.node,
        *exported.graph.value_info,
        *exported.graph.input,
        *exported.graph.output,
        exported.graph,
    ):
        del part.metadata_props[:]  # stack traces of the machine that trained it
    onnx.save(exported, HERE / "digits.onnx")
    np.savez_compressed(HERE / "held_out.npz", image=images[held_out], label=labels[held_out])


if __name__ == "__main__":
    main()
