"""A vocabulary that a program trains on made-up text has the size that the program asks for."""

from __future__ import annotations

import sys

import pytest

from flint.workload.loading import load
from tests.programs import results
from tests.support.command_line import flint

#: 1,024 different words cannot be 30,000 pieces.
TRAINS = """
import io, jax, jax.numpy as jnp, numpy as np, sentencepiece, tensorflow_datasets as tfds
rows = tfds.load("lm1b", split="train").take(100).as_numpy_iterator()
with open("text.txt", "wb") as file:
    file.writelines(row["text"] + b"\\n" for row in rows)
sentencepiece.SentencePieceTrainer.Train(
    "--input=text.txt --vocab_size=30000 --model_prefix=words --model_type=unigram"
)
words = sentencepiece.SentencePieceProcessor(model_file="words.model")
line = open("text.txt").readline().strip()
tokens = np.array(words.encode(line))
assert len(tokens) == len(line.split()) and words.decode(tokens.tolist()) == line
table = jnp.ones((words.vocab_size(), 64))
step = jax.jit(lambda table, tokens: table - jax.grad(lambda t: t[tokens].sum())(table))
for _ in range(4):
    table = step(table, tokens)
"""


@pytest.mark.thorough
def test_a_vocabulary_trained_on_texts_of_tfds_has_the_size_that_is_asked_for(tmp_path):
    if not all(map(results.is_installed, ("tensorflow-datasets", "sentencepiece"))):
        pytest.skip("tensorflow-datasets is not in this environment: make test-programs")
    (tmp_path / "p.py").write_text(TRAINS)
    out = tmp_path / "out"
    done = flint(
        "run", "--world", 1, "--fake-data", "-o", out, "--", sys.executable, "p.py", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    [program] = load(out).programs
    assert (30_000, 64) in [item.type.shape for item in program.inputs]
