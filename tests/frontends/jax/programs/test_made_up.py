"""What a program gets in place of what is not there, or not known yet."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from importlib.util import find_spec

import pytest

from tests.frontends.jax.programs.test_against_runs import command
from tests.support.command_line import flint
from tests.support.shared import quick

MISSING = """
import jax, jax.numpy as jnp, orbax.checkpoint as ocp
manager = ocp.CheckpointManager("FOLDER/none")
state = manager.restore(7, args=ocp.args.StandardRestore({"w": jnp.ones((8, 8))}))
step = jax.jit(lambda state, x: {"w": state["w"] + x.sum()}, donate_argnums=0)
for _ in range(4):
    state = step(state, jnp.ones(8))
"""


@pytest.mark.thorough
def test_a_checkpoint_that_is_not_there_is_made_up_on_request(tmp_path):
    (tmp_path / "p.py").write_text(MISSING.replace("FOLDER", str(tmp_path)))
    options = ("-o", tmp_path / "out", "--fake-data")
    run = command(tmp_path / "p.py", devices=1, per_node=1, options=options)
    assert run.returncode == 0, run.stderr
    assert re.search(r"made-up data at .*p\.py:4: a checkpoint: arrays", run.stderr)


#: Where the results of the first step lie is asked for before the step is found.
ENDS_BY_DATA = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
w = jax.device_put(np.ones((512, 512), np.float32), NamedSharding(mesh, P("x")))
step = jax.jit(lambda w: jax.lax.while_loop(lambda w: w.sum() > 1, lambda w: 0.9 * w, w))
for _ in range(4):
    w = step(w)
    assert len(w.sharding.device_set) == 4
"""


def test_a_placement_that_a_program_asks_for_needs_no_trip_counts(tmp_path):
    (tmp_path / "p.py").write_text(ENDS_BY_DATA)
    options = "--trip-count", 5, "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=options)
    assert run.returncode == 0, run.stderr


#: Its batches come from a process that reads a file, or a hub, that is not there.
WORKERS = """
import multiprocessing, socket, sys
import numpy as np

def work(queue):
    tokens = np.memmap("none.bin", np.uint16, "r", shape=(4, 8))
    try:
        socket.create_connection(("hub.example", 443))
    except OSError as error:
        queue.put((np.array(tokens), str(error)))

if __name__ == "__main__":
    import jax, jax.numpy as jnp
    ways = multiprocessing.get_context(sys.argv[1])
    queue = ways.Queue()
    ways.Process(target=work, args=(queue,)).start()
    tokens, said = queue.get()
    assert tokens.shape == (4, 8) and "no network in a capture" in said
    step = jax.jit(lambda w, x: w + x.sum(), donate_argnums=0)
    w = jnp.ones((8, 8))
    for _ in range(4):
        w = step(w, tokens)
"""


@pytest.mark.parametrize("way", quick(["fork", "spawn", "forkserver"]))
def test_a_process_that_loads_data_has_what_the_program_has(tmp_path, way):
    (tmp_path / "p.py").write_text(WORKERS)
    options = "--world", "1", "--fake-data", "-o", "out"
    run = flint("run", *options, "--", "p.py", way, cwd=tmp_path, imported=None)
    assert run.returncode == 0, run.stderr
    assert "made-up data at p.py:6: none.bin has" in run.stderr
    assert "a connection to hub.example at p.py:8 is refused" in run.stderr


FLAX = """
import jax
from transformers import FlaxAutoModel
model = FlaxAutoModel.from_pretrained("small", dtype="bfloat16")
assert model.config.hidden_size == 32
step = jax.jit(lambda params: jax.tree.map(lambda one: 2 * one, params))
params = model.params
for _ in range(4):
    params = step(params)
"""


def test_a_flax_model_without_weights_is_the_one_that_its_configuration_describes(tmp_path):
    if find_spec("transformers") is None or version("transformers") >= "5":
        pytest.skip("transformers with flax models is not installed")
    (tmp_path / "small").mkdir()
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"model_type": "bert", "intermediate_size": 8, "vocab_size": 90} | sizes
    (tmp_path / "small/config.json").write_text(json.dumps(config))
    (tmp_path / "p.py").write_text(FLAX)
    options = ("--world", "1", "--fake-data", "-o", "out")
    without = {"USE_TF": "0", "USE_TORCH": "0"}
    run = flint("run", *options, "--", "p.py", cwd=tmp_path, imported=None, **without)
    assert run.returncode == 0, run.stderr
    assert "weights of small: as initialised by the model" in run.stderr
