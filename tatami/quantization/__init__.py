"""Quantisation: an ONNX model in, an ONNX model with weights of 4 or 8 bits out.

    settings.py     what is asked for: bits of weights, activations, blocks, ranges, form, layers left out
    layers.py       the products and convolutions of a model that have constant weights
    rounding.py     weights -> codes and scales, by rounding to the nearest
    samples.py      calibration arrays, checked against the model's inputs
    ranges.py       calibration: what values a tensor takes, and the range that is worth its codes
    rewrite.py      the model with quantised layers, in ONNX's operators
    sensitivity.py  what each layer alone costs, against the float64 reference
    api.py          `tt.quantize`: all of it in order, and the table of layers

It stands above the chain: calibration and sensitivity run programs.
"""
