"""Every architecture of `transformers` with a small configuration and random weights, eager against torch.compile:

    python -m tests.models.survey [name …]                        the models by these names, else all
    python -m tests.models.survey --part 0/8 --record FILE        a share, a JSON line each; models of the file are not run again

A model is `right` if every result is within five times the error of PyTorch's own float32 run to float64, `partly` if operators
of it stay in PyTorch, `wrong` or `crashed` else. `unknown`: it does not run in eager with the configuration made here. Random
networks (VITS) are `wrong` whenever their noise decides a shape. Weights are moved by noise: those of a fresh model are often
equal, so that a mixture of experts has only ties. Each model runs in a process of its own, for --seconds at most.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers

from tatami import backends
from tatami.core.diagnostic import TatamiError

NOISE, MOST_WEIGHTS = 0.02, 60_000_000
"""Standard deviation of the noise that is added to weights; most weights of a model that is run."""
WIDTHS = dict.fromkeys(
    ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size", "emb_dim"), 64
) | dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner", "hidden_dim", "mlp_dim"), 96)  # fmt: skip
COUNTS = dict.fromkeys(
    (
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
        "num_encoder_layers", "num_key_value_heads", "num_experts_per_tok",
    ), 2,
) | dict.fromkeys(
    (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
        "num_experts", "num_local_experts", "n_routed_experts",
    ), 4,
)  # fmt: skip
OTHERS = {
    "projection_dim": 32, "vocab_size": 131, "max_position_embeddings": 128, "n_positions": 128, "image_size": 64, "patch_size": 16,
    "head_dim": 16, "d_kv": 16, "moe_intermediate_size": 32, "v_head_dim": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "kv_lora_rank": 16, "q_lora_rank": 24, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sliding_window": 16,
    "decoder_start_token_id": 1,
}  # fmt: skip
SIZES: Mapping[str, int] = WIDTHS | COUNTS | OTHERS
"""Fields of configurations, and the number that each gets where it holds one."""
Feed = dict[str, Any]


class Verdict(msgspec.Struct):
    """Verdict on one model. `error`, `own`: the greatest relative error to float64 (Frobenius norms) of a result, ours and
    eager's."""

    name: str
    verdict: str
    why: str = ""
    error: float = 0.0
    own: float = 0.0
    left: list[str] = []


def architectures() -> Iterator[tuple[str, Any, Any]]:
    """Name, class of the configuration and class of the model of each architecture, by name."""
    known, found = transformers.MODEL_MAPPING, {}
    for key in list(known._model_mapping):
        try:
            config = known._load_attr_from_module(key, known._config_mapping[key])
            classes = known._load_attr_from_module(key, known._model_mapping[key])
        except (ValueError, ImportError):  # an architecture that this version names and does not have
            continue
        for each in classes if isinstance(classes, tuple) else (classes,):
            found[each.__name__] = (each.__name__, config, each)
    return iter(sorted(found.values(), key=lambda row: row[0]))


def shrink(config: Any) -> Any:
    """The configuration, and those within it, with the SIZES in the place of its own."""
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig):
            shrink(value)
        elif name in SIZES and isinstance(value, int) and not isinstance(value, bool):
            setattr(config, name, SIZES[name])
    kinds = list(dict.fromkeys(getattr(config, "layer_types", None) or ()))
    if kinds:
        config.layer_types = (kinds * 2)[:2]
    return config


def feed_of(model: Any, config: Any) -> Feed:
    """Inputs by the names of the model's arguments: tokens, pictures, sound."""
    import inspect

    names, generator = inspect.signature(model.forward).parameters, torch.Generator().manual_seed(1)
    parts = [
        c for c in (config, *(getattr(config, f"{n}_config", None) for n in ("vision", "text", "backbone"))) if c is not None
    ]

    def field(name: str, other: Any) -> Any:
        return next((v for c in parts if (v := getattr(c, name, None)) is not None), other)

    feed: Feed = {}
    for name, count in (("input_ids", 13), ("decoder_input_ids", 7)):
        if name in names:
            feed[name] = torch.randint(3, 100, (2, count), generator=generator)
    if "pixel_values" in names:
        size = field("image_size", 64)
        sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
        feed["pixel_values"] = torch.randn(2, field("num_channels", 3), *sides, generator=generator)
    if "input_values" in names:
        feed["input_values"] = torch.randn(2, 4000, generator=generator)
    if "input_features" in names:
        shape = 2, field("num_mel_bins", 80), 2 * field("max_source_positions", 50)
        feed["input_features"] = torch.randn(*shape, generator=generator)
    if "use_cache" in names:
        feed["use_cache"] = False
    return feed


def results_of(value: object) -> list[torch.Tensor]:
    """The tensors of a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for part in value.values() for t in results_of(part)]
    return [t for part in value for t in results_of(part)] if isinstance(value, list | tuple) else []


def error_of(results: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    """The greatest relative error of a result, or share of integers that differ; infinite for other shapes, dtypes or NaN."""
    if len(results) != len(reference):
        return float("inf")
    worst = 0.0
    for got, wanted in zip(results, reference, strict=True):
        if got.shape != wanted.shape or not torch.equal(got.isnan(), wanted.isnan()):
            return float("inf")
        if not got.numel():
            continue
        if got.is_floating_point():
            a, b = (t.double().nan_to_num() for t in (got, wanted))
            worst = max(worst, float((a - b).norm() / b.norm()) if b.norm() else float((a - b).norm()))
        else:
            worst = max(worst, float((got != wanted).double().mean()))
    return worst


def judge(name: str, config_class: Any, model_class: Any) -> Verdict:
    """The model with a small configuration, run in eager, in float64 and compiled."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        config = shrink(config_class())
        config._attn_implementation = "eager"
        model = model_class(config).eval()
        generator, weights = torch.Generator().manual_seed(5), list(model.parameters())
        if sum(w.numel() for w in weights) > MOST_WEIGHTS:
            return Verdict(name, "unknown", "its small form is too large")
        with torch.no_grad():
            for w in weights:
                if w.is_floating_point():
                    w.add_(NOISE * torch.randn(w.shape, generator=generator))
            feed = feed_of(model, config)
            wanted = results_of(model(**feed))
    except Exception as error:  # whatever a model raises for a configuration that is not its own
        return Verdict(name, "unknown", f"{type(error).__name__}: {error}"[:200])
    try:
        with torch.no_grad():
            got = results_of(torch.compile(model, backend="tatami", options={"threads": 1})(**feed))
    except TatamiError as error:
        return Verdict(name, "crashed", str(error)[:1000])
    except Exception as error:  # Dynamo's own are not ours: the name says which
        return Verdict(name, "crashed", f"{type(error).__name__}: {error}"[:1000])
    left = sorted({str(u)[:200] for report in backends.torch_reports() for u in (*report.unsupported, *report.refused)})
    try:
        with torch.no_grad():
            exact = results_of(
                model.double()(
                    **{n: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for n, t in feed.items()}
                )
            )
    except RuntimeError:  # operators without float64
        exact = wanted
    ours, own = error_of(got, exact), error_of(wanted, exact)
    if [t.dtype for t in got] != [t.dtype for t in wanted]:
        ours = float("inf")
    verdict = "wrong" if not ours <= max(5 * own, 1e-5) else "partly" if left else "right"
    return Verdict(name, verdict, "", ours, own, left)


def _answer(pipe: Connection, name: str, config_class: Any, model_class: Any) -> None:
    warnings.simplefilter("ignore")
    pipe.send_bytes(msgspec.json.encode(judge(name, config_class, model_class)))


def alone(name: str, config_class: Any, model_class: Any, seconds: float) -> Verdict:
    """The verdict of a process that began with what this one has imported."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(there, name, config_class, model_class), daemon=True)
    process.start()
    there.close()
    try:
        if here.poll(seconds):
            return msgspec.json.decode(here.recv_bytes(), type=Verdict)
        return Verdict(name, "unknown", f"no end after {seconds:.0f} s")
    except EOFError:
        process.join()
        return Verdict(name, "crashed", f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.survey", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="names of models; all if there is none")
    parser.add_argument("--part", default="0/1", help="a share, such as 0/8")
    parser.add_argument("--record", type=Path, help="file of JSON lines to go on with")
    parser.add_argument("--seconds", type=float, default=300.0, help="the longest that a model may take")
    asked = parser.parse_args()
    part, parts = (int(n) for n in asked.part.split("/"))
    known = (
        [json.loads(line) for line in asked.record.read_text().splitlines()] if asked.record and asked.record.exists() else []
    )
    counts = Counter(row["verdict"] for row in known)
    for name, config_class, model_class in architectures():
        is_asked = name in asked.names if asked.names else zlib.crc32(name.encode()) % parts == part
        if not is_asked or any(row["name"] == name for row in known):
            continue
        found = alone(name, config_class, model_class, asked.seconds)
        counts[found.verdict] += 1
        print(f"{name}: {found.verdict} {found.error:.1e} {found.own:.1e} {found.why or '; '.join(found.left)}", flush=True)
        if asked.record:
            with asked.record.open("a") as file:
                file.write(msgspec.json.encode(found).decode() + "\n")
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))
    return 1 if counts["wrong"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
