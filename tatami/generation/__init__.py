"""Text from a decoder: `Generator(program, tokenizer)`, which `tatami generate` and `tatami serve` use too.

sampling.py      logits -> a token: greedy, temperature, top-k, top-p, min-p, repetition penalty, seeds
tokens.py        text <-> tokens, by the vocabulary of a GGUF file
templates.py     a conversation -> text, by the model's template in a process of its own (template_process.py)
text.py          tokens -> text as it comes: whole characters, stop strings
sequences.py     a request: its tokens, its place in the caches, why it ended
engine.py        steps of the program for several sequences, which begin and end at any step
generator.py     the face
"""

from __future__ import annotations

from tatami.generation.engine import Engine
from tatami.generation.generator import Generator
from tatami.generation.sampling import Sampling
from tatami.generation.sequences import Reason, Result
from tatami.generation.tokens import Tokenizer

__all__ = ["Engine", "Generator", "Reason", "Result", "Sampling", "Tokenizer"]
