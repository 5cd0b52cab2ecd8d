"""Real architectures with random weights, built offline from `transformers` configurations (and one U-Net in plain torch).

Default initialisation lets some of these collapse to zero, and then any wrong compiler agrees. `redraw` gives every
linear map unit-variance outputs and every batch norm the statistics of its input, layer by layer in one forward pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn

from tests.models.nets import Conformer, Detector, GraphNet, StyleNet

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Architecture:
    """How to build a module and its inputs.

    sizes: the symbolic sizes with the values the export sees. inputs: the inputs for given values of them.
    dynamic: {input: {axis: symbol}} for the export. other_sizes: further values that one compilation has to serve.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[Mapping[str, int]], Inputs]
    sizes: Mapping[str, int]
    other_sizes: Mapping[str, int]
    dynamic: Mapping[str, Mapping[int, str]]
    needs_scripting: bool = False  # the exporter of torch.export fails on the model; the older one does not


def linear_maps(module: nn.Module) -> list[nn.Module]:
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
    return [m for m in module.modules() if isinstance(m, kinds) or type(m).__name__ == "Conv1D"]


def redraw(module: nn.Module, inputs: Inputs, seed: int = 0) -> nn.Module:
    """`module` in eval mode with weights whose activations have a standard deviation near one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim >= 2:
                parameter.copy_(noise / max(parameter[0].numel(), 1) ** 0.5 if "embed" not in name else noise * 0.5)
            elif name.endswith("weight"):
                parameter.copy_(1 + 0.1 * noise)
            else:
                parameter.add_(0.1 * noise)

    def normalise(layer: Any, _: Any, output: Tensor) -> Tensor:
        scale = output.std().clamp_min(1e-12)
        layer.weight.div_(scale)
        if layer.bias is not None:
            layer.bias.div_(scale)
        return output / scale

    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    for dropout in (m for m in module.modules() if isinstance(m, nn.Dropout)):
        dropout.eval()
    hooks = [m.register_forward_hook(normalise) for m in linear_maps(module)]
    with torch.no_grad():
        module(**inputs)
    for hook in hooks:
        hook.remove()
    return module.eval()


def tokens(vocabulary: int) -> Callable[[Mapping[str, int]], Inputs]:
    def inputs(sizes: Mapping[str, int]) -> Inputs:
        generator = torch.Generator().manual_seed(1)
        return {"input_ids": torch.randint(0, vocabulary, (sizes["batch"], sizes["seq"]), generator=generator)}

    return inputs


def image(name: str, *shape: int) -> Callable[[Mapping[str, int]], Inputs]:
    def inputs(sizes: Mapping[str, int]) -> Inputs:
        return {name: torch.randn(sizes["batch"], *shape, generator=torch.Generator().manual_seed(1))}

    return inputs


def graph(sizes: Mapping[str, int]) -> Inputs:
    """Features of nodes, and edges between random ones."""
    generator = torch.Generator().manual_seed(1)
    ends = torch.randint(0, sizes["nodes"], (2, sizes["edges"]), generator=generator)
    return {"nodes": torch.randn(sizes["nodes"], 16, generator=generator), "edges": ends}


class FirstOutput(nn.Module):
    """The tensor a model is about, out of its output record."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], **fixed: Any) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.fixed = fixed

    def first(self, **inputs: Tensor) -> Tensor:
        output = self.model(**inputs, **self.fixed)
        return next(output[n] for n in self.names if n in output)


class TokenModel(FirstOutput):
    def forward(self, input_ids: Tensor) -> Tensor:
        return self.first(input_ids=input_ids)


class ImageModel(FirstOutput):
    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.first(pixel_values=pixel_values)


class SoundModel(FirstOutput):
    def forward(self, input_features: Tensor) -> Tensor:
        return self.first(input_features=input_features)


class PairModel(FirstOutput):
    def forward(self, input_ids: Tensor) -> Tensor:
        return self.first(input_ids=input_ids, decoder_input_ids=input_ids)


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
    return TokenModel(BertModel(config), ("last_hidden_state",))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=256, n_layer=4, n_head=8, vocab_size=5000, n_positions=256)
    return TokenModel(GPT2LMHeadModel(config), ("logits",), use_cache=False)


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=1000,
    )
    return TokenModel(LlamaForCausalLM(config), ("logits",), use_cache=False)


def qwen3() -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=1000,
    )
    return TokenModel(Qwen3ForCausalLM(config), ("logits",), use_cache=False)


def mamba() -> nn.Module:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(hidden_size=128, num_hidden_layers=2, state_size=8, vocab_size=1000)
    return TokenModel(MambaForCausalLM(config), ("logits",), use_cache=False)


def t5() -> nn.Module:
    from transformers import T5Config, T5Model

    config = T5Config(d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, vocab_size=1000)
    return PairModel(T5Model(config), ("last_hidden_state",), use_cache=False)


def resnet(depths: tuple[int, ...], kind: str, widths: tuple[int, ...]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import ResNetConfig, ResNetForImageClassification

        config = ResNetConfig(depths=list(depths), layer_type=kind, hidden_sizes=list(widths), num_labels=1000)
        return ImageModel(ResNetForImageClassification(config), ("logits",))

    return build


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768, num_labels=1000)
    return ImageModel(ViTForImageClassification(config), ("logits",))


def convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[40, 80, 160, 320], depths=[2, 2, 6, 2], num_labels=1000)
    return ImageModel(ConvNextForImageClassification(config), ("logits",))


def mobilenet_v2() -> nn.Module:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    return ImageModel(MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000)), ("logits",))


def efficientnet() -> nn.Module:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(width_coefficient=1.0, depth_coefficient=1.0, image_size=128, hidden_dim=1280, num_labels=1000)
    return ImageModel(EfficientNetForImageClassification(config), ("logits",))


def swin() -> nn.Module:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(embed_dim=48, depths=[2, 2, 2, 2], num_heads=[3, 6, 12, 24], num_labels=100)
    return ImageModel(SwinForImageClassification(config), ("logits",))


def segformer() -> nn.Module:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    return ImageModel(SegformerForSemanticSegmentation(SegformerConfig(num_labels=20)), ("logits",))


def whisper_encoder() -> nn.Module:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return SoundModel(WhisperEncoder(config), ("last_hidden_state",))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.GroupNorm(4, outputs),
            nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.GroupNorm(4, outputs),
            nn.SiLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class UNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = Block(3, width)
        self.down = Block(width, 2 * width)
        self.middle = Block(2 * width, 4 * width)
        self.widen = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up = Block(4 * width, 2 * width)
        self.widen_last = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = Block(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, pixel_values: Tensor) -> Tensor:
        a = self.first(pixel_values)
        b = self.down(torch.nn.functional.max_pool2d(a, 2))
        c = self.middle(torch.nn.functional.max_pool2d(b, 2))
        d = self.up(torch.cat([self.widen(c), b], 1))
        return self.head(self.last(torch.cat([self.widen_last(d), a], 1)))


TOKENS = {"input_ids": {0: "batch", 1: "seq"}}
IMAGES = {"pixel_values": {0: "batch"}}
TEXT = {"batch": 2, "seq": 17}
OTHER_TEXT = {"batch": 3, "seq": 33}


def text(build: Callable[[], nn.Module], vocabulary: int, **more: Any) -> Architecture:
    return Architecture(build, tokens(vocabulary), TEXT, OTHER_TEXT, TOKENS, **more)


def picture(build: Callable[[], nn.Module], size: int, **more: Any) -> Architecture:
    return Architecture(build, image("pixel_values", 3, size, size), {"batch": 2}, {"batch": 3}, IMAGES, **more)


ZOO: dict[str, Architecture] = {
    "bert": text(bert, 30522),
    "gpt2": text(gpt2, 5000),
    "resnet18": picture(resnet((2, 2, 2, 2), "basic", (64, 128, 256, 512)), 64),
    "vit": picture(vit, 224),
    "unet": picture(UNet, 64),
    "whisper_encoder": Architecture(
        whisper_encoder, image("input_features", 80, 3000), {"batch": 1}, {"batch": 2}, {"input_features": {0: "batch"}}
    ),
    "llama": text(llama, 1000),
    "qwen3": text(qwen3, 1000),
    "mamba": Architecture(mamba, tokens(1000), {"batch": 2, "seq": 16}, {"batch": 3, "seq": 16}, {"input_ids": {0: "batch"}}),
    "t5": text(t5, 1000, needs_scripting=True),
    "swin": picture(swin, 224, needs_scripting=True),
    "convnext": picture(convnext, 64),
    "resnet50": picture(resnet((3, 4, 6, 3), "bottleneck", (256, 512, 1024, 2048)), 64),
    "mobilenet_v2": picture(mobilenet_v2, 64),
    "efficientnet": picture(efficientnet, 64),
    "segformer": picture(segformer, 64),
    "graph_net": Architecture(
        GraphNet,
        graph,
        {"nodes": 20, "edges": 70},
        {"nodes": 33, "edges": 121},
        {"nodes": {0: "nodes"}, "edges": {1: "edges"}},
    ),
    "conformer": Architecture(
        Conformer,
        lambda sizes: {"sound": torch.randn(sizes["batch"], 40, 80, generator=torch.Generator().manual_seed(1))},
        {"batch": 2},
        {"batch": 3},
        {"sound": {0: "batch"}},
        needs_scripting=True,
    ),
    "style_net": Architecture(StyleNet, image("z", 64), {"batch": 2}, {"batch": 3}, {"z": {0: "batch"}}),
    "detector": picture(Detector, 64),
}
CORE = ("bert", "gpt2", "resnet18", "vit", "unet", "whisper_encoder")


def make(name: str) -> nn.Module:
    """The module of `ZOO[name]`; batch statistics come from a batch of eight."""
    torch.manual_seed(0)
    architecture = ZOO[name]
    module = architecture.build().eval()
    has_statistics = any(isinstance(m, nn.BatchNorm2d) for m in module.modules())
    return redraw(module, architecture.inputs({**architecture.sizes, **({"batch": 8} if has_statistics else {})}))
