"""Known disagreements and failures of cases: where the oracles differ, which one is followed, and what fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeVar

from tests.onnx.grid.cases import Case

Followed = Literal["reference", "onnxruntime", "text"]


@dataclass(frozen=True)
class Known:
    """Cases: operators, apart by |, a pattern of labels as of file names, and versions from the first to the last."""

    ops: str
    labels: str
    why: str
    versions: tuple[int, int] = (1, 1000)

    def has(self, case: Case) -> bool:
        first, last = self.versions
        return (
            case.op in self.ops.split("|")
            and fnmatchcase(case.label, self.labels.replace("[", "[[]"))
            and first <= case.version <= last
        )


@dataclass(frozen=True)
class Disagreement(Known):
    """Cases in which the oracles differ, or in which the one that has an answer is wrong. "text": neither is followed."""

    follows: Followed = "text"
    against_both: bool = False
    """True if the operator's text is followed although the oracles agree."""


def _ort(ops: str, labels: str, why: str, first: int = 1, last: int = 1000) -> Disagreement:
    return Disagreement(ops, labels, why, (first, last), "onnxruntime")


def _reference(ops: str, labels: str, why: str, first: int = 1, last: int = 1000) -> Disagreement:
    return Disagreement(ops, labels, why, (first, last), "reference")


def _text(ops: str, labels: str, why: str, first: int = 1, last: int = 1000) -> Disagreement:
    return Disagreement(ops, labels, why, (first, last), "text")


def _against_both(ops: str, labels: str, why: str, first: int = 1, last: int = 1000) -> Disagreement:
    return Disagreement(ops, labels, why, (first, last), "text", True)


_INTEGER_SUMS = "ReduceL1|ReduceProd|ReduceSum|ReduceSumSquare"
_MAXIMA = "ScatterElements|ScatterND"

DISAGREEMENTS: tuple[Disagreement, ...] = (
    _text("Hardmax", "*special values*", "NaN is the greatest element, as for ArgMax; ONNX Runtime finds none greater"),
    _ort(
        "Softmax|LogSoftmax|Hardmax",
        "*",
        "the reference evaluator has the meaning of opset 13, one axis, in every version",
        1,
        12,
    ),
    _reference("LogSoftmax", "*special values*", "a row with an infinity is NaN where it is subtracted from itself"),
    _text(
        "RNN|GRU|LSTM",
        "row 0 activations=['ThresholdedRelu'*]",
        "alpha is 1 where it is not given, as in the operator of that name; ONNX Runtime takes 0",
    ),
    _text("GRU|LSTM", "row 0 activations=['Softplus'*", "Softplus does not overflow; ONNX Runtime's exp does"),
    _text(
        "LSTM",
        "row 0 activations=['LeakyRelu'*alpha*",
        "states grow until they overflow: an order of additions decides between infinity and NaN",
    ),
    _text(
        "GRU",
        "row 0 direction=bidirectional*activations=['Relu', 'Affine'*",
        "states grow to 10^10: the order of additions shows in small results",
    ),
    _ort(
        "RNN|GRU|LSTM",
        "row 0*",
        "the reference evaluator ignores sequence_lens and the attributes activations, clip and direction",
    ),
    _ort(
        "RNN|GRU|LSTM",
        "row 1*",
        "the reference evaluator ignores direction, rounds 16 bits at each step, and has clip and layout in part",
    ),
    _text(
        "LRN",
        "*special values*",
        "the sum of a window without infinities is finite; ONNX Runtime subtracts what leaves the window",
    ),
    _ort("LRN", "*", "the reference evaluator goes over as many channels as there are rows"),
    _ort("BatchNormalization", "*", "the reference evaluator takes opset 9's inference for training", 7, 13),
    _ort("GlobalMaxPool", "row 0 #0=*", "the reference evaluator drops the axes of an input of rank 3"),
    _reference("GlobalMaxPool", "*special values*", "the maximum with NaN among the elements is NaN"),
    _against_both(
        "MaxPool", "*special values*", "a maximum with NaN in its window is NaN; the oracles compare, and may skip it"
    ),
    _text(
        "MaxPool|AveragePool|LpPool",
        "row ? auto_pad=SAME_* dilations=*",
        "ceil(size / stride) results by the text; ONNX Runtime leaves dilations out, the reference evaluator pads otherwise",
    ),
    _ort(
        "MaxPool|AveragePool|LpPool",
        "row *",
        "the reference evaluator shifts uneven pads, pads otherwise in auto_pad, counts otherwise in ceil_mode, and has no indices of padded windows",
    ),
    _ort("LpNormalization", "row 0 p=1", "the reference evaluator divides by the sum, not by the sum of magnitudes"),
    _text(
        "ReduceSumSquare",
        "*int32*",
        "the result has the operand's dtype; the reference evaluator gives 64 bits, ONNX Runtime saturates",
    ),
    _reference(_INTEGER_SUMS, "*int*", "integers wrap; ONNX Runtime saturates some and computes others in floats"),
    _text("ReduceMean", "*int*", "the exact mean, truncated; the oracles overflow or compute in floats"),
    _text(
        "ReduceL2|ReduceLogSum|ReduceLogSumExp",
        "*int*",
        "computed in double precision and truncated; squares of integers overflow in the oracles, a NaN has no integer",
    ),
    _ort(
        "ReduceL2|ReduceMean|ReduceLogSum|Mean",
        "*float16*",
        "sums of 16 bits are kept in 32; the reference evaluator overflows",
    ),
    _reference("ReduceMean", "row 0 #0=[2, 0, 4]*", "the mean of nothing is NaN"),
    _reference("ReduceLogSumExp", "*limits*", "the greatest element is taken out before exp; ONNX Runtime overflows"),
    _reference(
        "ScatterElements|ScatterND", "*special values*", "the maximum and the minimum with NaN are NaN; ONNX Runtime compares"
    ),
    _reference("Clip", "row *", "a bound that is NaN gives NaN; ONNX Runtime compares"),
    _text("TopK", "*sorted=0", "the order is not defined: ours is sorted"),
    _ort("TopK", "*bfloat16*", "the reference evaluator does not sort bfloat16 with NaN"),
    _reference("Unique", "*special values*", "ONNX Runtime takes all elements for equal where one is NaN"),
    _reference("Sign", "*special values float16", "the sign of NaN is NaN"),
    _against_both("Shrink", "*special values *int64", "integers are moved as integers, with no rounding to double precision"),
    _reference("Shrink", "*special values*", "integers are compared and moved as integers; ONNX Runtime goes through floats"),
    _reference("NonZero", "row 0 #0=[]", "of a scalar there is no coordinate: [0, N] by the text"),
    _reference(
        "MaxUnpool", "row 0 #2=*", "indices are those of the pooled tensor, whatever output_shape adds (ONNX's node suite)"
    ),
    _ort("Bernoulli", "*", "the reference evaluator draws 1 where the probability is 0"),
    _text("RoiAlign", "row 0*", "half_pixel came with opset 16, which the reference evaluator has in all versions", 10, 15),
    _ort("RoiAlign", "*mode=max*", "the reference evaluator has another maximum"),
    _ort("DynamicQuantizeLinear", "row 0 #0=[0.0, 0.0]", "of zeros alone the scale is 1: a scale of 0 would divide by 0"),
    _text("QuantizeLinear", "*special values*", "infinities saturate by the text; the oracles cast them"),
    _text("QuantizeLinear", "*limits*", "what is beyond the range saturates; the reference evaluator wraps"),
    _ort("QLinearMatMul", "*", "the reference evaluator rounds the product before it adds the zero point"),
    _ort(
        "Resize",
        "*tf_crop_and_resize*",
        "length_resized is the result's size; the reference evaluator takes scale * length_original",
    ),
    _text("Selu", "row 0*", "the defaults of opset 1 have four decimals; the reference evaluator takes those of opset 6", 1, 5),
    _text("Cast", "row 15 special values float8e5m2", "a cast to the dtype that a tensor has changes nothing"),
    _reference("Resize", "*half_pixel_symmetric nearest*", "a position that is whole but for rounding"),
    _text(
        "Resize",
        "*(linear) *int*",
        "integers are computed in fp32 and truncated, as ONNX Runtime; the reference evaluator rounds",
    ),
    _text(
        "Resize",
        "*(cubic) *int*",
        "integers are computed in fp32 and truncated, as ONNX Runtime; the reference evaluator rounds",
    ),
    _text("Resize", "*(cubic) double", "the reference evaluator computes weights in fp32"),
    _ort(
        "Attention",
        "row 2*",
        "scores of mode 0 are those of the product alone; the reference evaluator gives them after softcap",
    ),
    _text("Attention", "row 2*bfloat16", "intermediate values of 16 bits are kept in 32"),
    _text("Attention", "row 2*int16", "scores of mode 0 are those of the product alone"),
    _reference(
        "Resize",
        "*align_corners*",
        "length_resized is scale * length_original where scales are given, as in ONNX's node suite",
    ),
    _ort("Resize", "*half_pixel nearest floor*", "positions are computed in fp32"),
    _ort("SequenceInsert", "*", "the reference evaluator puts a tensor at the end before the last one"),
    _ort("Optional|OptionalGetElement", "*", "the reference evaluator gives a list of one"),
    _ort("LayerNormalization", "row 1*", "mean and inverse deviation have the dtype of stash_type"),
    _ort("AffineGrid", "*", "the grid has the dtype of theta; the reference evaluator gives fp32"),
    _text("Dropout", "row 1*", "the mask keeps everything in inference; ONNX Runtime gives zeros", 7, 11),
    _text("Dropout", "row 3*", "the result has the operand's dtype; the reference evaluator gives fp32"),
    _ort("InstanceNormalization", "*float16", "statistics of 16 bits are kept in 32"),
    _text(
        "Pow",
        "*int*",
        "an integer to a negative power is 0, and what a cast of NaN gives is 0; the oracles have no value of their own",
    ),
    _text("GridSample", "row 36*", "positions are computed in fp32 and integers truncated once, not tap by tap"),
    _ort(
        "GridSample",
        "*",
        "cubic taps beyond the border are clamped one by one, as in PyTorch; the reference evaluator clamps the position",
    ),
    _ort("DeformConv", "*float16", "positions and sums of 16 bits are kept in 32"),
    _text("Det", "*bfloat16", "the result has the operand's dtype; the reference evaluator gives fp64"),
    _text("Gemm", "row 1 beta=0.5", "the reference evaluator leaves beta out", 1, 6),
    _text("Gemm", "*special values int*", "alpha and beta of 1 leave integers as they are; the oracles go through floats"),
)
"""The first entry that has a case counts."""
FAILING: tuple[Known, ...] = (Known("ImageDecoder", "*", "no import: decode images before the model"),)

K = TypeVar("K", bound=Known)


def known_of(case: Case, table: Iterable[K]) -> K | None:
    """The first entry that has the case."""
    return next((k for k in table if k.has(case)), None)
