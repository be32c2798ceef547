"""Programs without a step, and what programs do beside it: checkpoints, reads of values."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.launching.capturing import capture, steps
from flint.launching.program import Cluster, Program, ProgramRequest, StepChoice
from tests.frontends.jax.programs.really_run import instructions, partitioned
from tests.frontends.jax.programs.test_against_runs import PROGRAMS, modules, request
from tests.support.shared import quick_rows

ENDS = [
    ("import jax\njax.jit(lambda x: x * 2)(jax.numpy.ones(3))\n", "ended before its step ran 2"),
    ("import jax\nraise SystemExit('no data')\n", r"p\.py:2.*no data"),
    ("import jax\nname = input()\n", r"p\.py:2: .*it waits for input"),
    ("import jax\nopen('weights.npz')\n", r"p\.py:2: .*weights\.npz"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), quick_rows(ENDS, ENDS[0]))
def test_a_program_that_ends_before_its_step_is_one_line_with_its_own(text, said, tmp_path):
    (tmp_path / "p.py").write_text(text)
    program = Program(target=str(tmp_path / "p.py"))
    with pytest.raises(FlintError, match=said):
        capture(ProgramRequest(program=program, cluster=Cluster(world=4, per_node=4)))


@pytest.mark.thorough
def test_the_steps_of_a_program_are_listed_and_one_is_chosen():
    seen = steps(request("nnx_model", lists_steps=True))
    assert {"eval_step", "train_step"} <= {step.name for step in seen}
    workload = capture(request("nnx_model", step=StepChoice(name="eval_step")))
    assert workload.input["function"] == "eval_step"


@pytest.mark.thorough
def test_checkpoints_are_restored_without_values_and_none_is_written(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    fresh = capture(request("linen_state", "--checkpoints", str(folder)))
    assert not list(folder.iterdir())
    assert any("is not written" in text for text in fresh.warnings)
    partitioned(PROGRAMS / "linen_state.py", tmp_path, "--checkpoints", folder, "--steps", 2)
    saved = sorted(path.name for path in folder.iterdir())
    restored = capture(request("linen_state", "--checkpoints", str(folder)))
    assert sorted(path.name for path in folder.iterdir()) == saved
    assert any("is restored without its values" in text for text in restored.warnings)
    [(_, one)], [(_, other)] = modules(restored), modules(fresh)
    assert instructions(one) == instructions(other)


@pytest.mark.thorough
def test_values_that_nobody_knows_are_assumed_and_the_line_is_named():
    workload = capture(request("decode_loop"))
    assert any("an integer is read at" in text for text in workload.warnings)
    assert any("stay as they are from step to step" in text for text in workload.warnings)
