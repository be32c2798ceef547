"""Vocabularies of made-up texts: trained by the program, or read from a model that is not there."""

from __future__ import annotations

import sys

import pytest

from flint.workload.loading import load
from tests.programs import results
from tests.support.command_line import flint

#: Parts of a split that has 131,072 made-up rows, and more in reality.
PARTS = (
    ("train[:30000000]", 131072), ("train[20000000:20001000]", 1000),
    ("train[-30000000:-29999000]", 1000), ("train[1000:30000000]", 131072),
    ("train[:-200000]", 131072), ("train[-200000:]", 131072), ("train[1000:]", 130072),
)  # fmt: skip
#: 1,024 different words cannot be 30,000 pieces.
TRAINS = """
import io, jax, jax.numpy as jnp, numpy as np, sentencepiece, tensorflow_datasets as tfds
for part, number in PARTS:
    assert len(tfds.load("lm1b", split=part)) == number, part
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
    (tmp_path / "p.py").write_text(f"PARTS = {PARTS}\n{TRAINS}")
    out = tmp_path / "out"
    done = flint(
        "run", "--world", 1, "--fake-data", "-o", out, "--", sys.executable, "p.py", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    [program] = load(out).programs
    assert (30_000, 64) in [item.type.shape for item in program.inputs]


#: The model of a path in the program's configuration; a program relies on some special tokens.
READS = """
import jax, jax.numpy as jnp, numpy as np, sentencepiece
words = sentencepiece.SentencePieceProcessor()
words.Load("none/t5.model")
assert (words.pad_id(), words.eos_id()) == (0, 1) and words.bos_id() != -1
tokens = np.array(words.EncodeAsIds("w1 w2 w3"))
assert len(tokens) == 3 and words.DecodeIds(tokens.tolist()) == "w1 w2 w3"
table = jnp.ones((words.GetPieceSize(), 64))
step = jax.jit(lambda table, tokens: table - jax.grad(lambda t: t[tokens].sum())(table))
for _ in range(4):
    table = step(table, tokens)
"""


@pytest.mark.thorough
def test_a_vocabulary_that_is_not_there_has_a_usual_size_and_every_special_token(tmp_path):
    if not results.is_installed("sentencepiece"):
        pytest.skip("sentencepiece is not in this environment: make test-programs")
    (tmp_path / "p.py").write_text(READS)
    options = "--world", 1, "-o", tmp_path / "out"
    refused = flint("run", *options, "--", sys.executable, "p.py", cwd=tmp_path)
    assert refused.returncode == 1
    assert "p.py:4" in refused.stderr and "--fake-data" in refused.stderr
    done = flint("run", "--fake-data", *options, "--", sys.executable, "p.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [program] = load(tmp_path / "out").programs
    assert (32_000, 64) in [item.type.shape for item in program.inputs]


#: A model in a store of another machine, read by the program itself.
STORED = """
import sys, jax, jax.numpy as jnp, sentencepiece
if sys.argv[1] == "epath":
    from etils import epath
    model = epath.Path("none/words.model").read_bytes()
else:
    import tensorflow as tf
    with tf.io.gfile.GFile("none/words.model", "rb") as file:
        model = file.read()
words = sentencepiece.SentencePieceProcessor()
words.LoadFromSerializedProto(model)
table = jnp.ones((words.GetPieceSize(), 64))
step = jax.jit(lambda table, tokens: table - jax.grad(lambda t: t[tokens].sum())(table))
for _ in range(4):
    table = step(table, jnp.array(words.EncodeAsIds("w1 w2 w3")))
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("reader", "package"), [("epath", "etils"), ("gfile", "tensorflow-cpu")])
def test_a_vocabulary_that_the_program_reads_itself_is_made_up_too(reader, package, tmp_path):
    if not all(map(results.is_installed, ("sentencepiece", package))):
        pytest.skip(f"sentencepiece or {package} is not in this environment: make test-programs")
    (tmp_path / "p.py").write_text(STORED)
    options = "--world", 1, "-o", tmp_path / "out"
    program = "--", sys.executable, "p.py", reader
    refused = flint("run", *options, *program, cwd=tmp_path)
    assert refused.returncode == 1
    assert "p.py:" in refused.stderr and "--fake-data" in refused.stderr
    done = flint("run", "--fake-data", *options, *program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "model none/words.model: one token per word" in done.stderr
    [program] = load(tmp_path / "out").programs
    assert (32_000, 64) in [item.type.shape for item in program.inputs]
