"""Small programs: run as one rank of a cluster until it has said what it sees, or requested."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import sys
import textwrap
from collections import Counter

import pytest

from flint import registry
from flint.errors import FlintError
from flint.host.child_processes import Limits
from flint.host.tasks import run_all
from flint.launching.child import be_program
from flint.launching.notes import noted
from flint.launching.program import Cluster, Program, ProgramRequest

LIMITS = Limits(seconds=1200, memory=2**35)


@pytest.fixture
def said(tmp_path, monkeypatch):
    """What a program says about itself, as rank 5 of 16 with 4 on a host.

    The tests' process may have used jax, which does not concern these programs.
    """
    monkeypatch.setattr(registry, "PROGRAMS", {"torch": registry.PROGRAMS["torch"]})

    def run(text, **asked):
        answer = tmp_path / "answer.json"
        lines = [
            # One thread, as flint run has it: this process's others are not in its copy.
            "import json, os, torch; torch.set_num_threads(1)",
            "def say(*items): json.dump(items, open(os.environ['ANSWER'], 'w'))",
            textwrap.dedent(text),
        ]
        (tmp_path / "train.py").write_text("\n".join(lines))
        program = Program(target=str(tmp_path / "train.py"), environment={"ANSWER": str(answer)})
        cluster = Cluster(world=16, per_node=4, device="a100-sxm")
        request = ProgramRequest(program=program, cluster=cluster, **asked)
        with contextlib.suppress(FlintError):  # most have no step
            run_all(functools.partial(be_program, request), [5], tmp_path, LIMITS)
        return json.loads(answer.read_text())

    return run


@pytest.fixture
def request_of(tmp_path, monkeypatch):
    """What is asked of a program with that text, ``train.py`` in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "PROGRAMS", {"torch": registry.PROGRAMS["torch"]})

    def make(text, *, world=1, per_node=None, **asked):
        (tmp_path / "train.py").write_text(textwrap.dedent(text))
        cluster = Cluster(world=world, per_node=per_node or world)
        return ProgramRequest(program=Program(target="train.py"), cluster=cluster, **asked)

    return make


@pytest.fixture
def package(monkeypatch):
    """flash_attn's stand-in, in this process, which remembers nothing of it."""
    kernel_packages = importlib.import_module("flint.frontends.torch.programs.kernel_packages")
    before, said = set(sys.modules), Counter(noted)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    kernel_packages.provide(["flash_attn"])
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("flash_attn", "grouped_gemm", "kernels")):
            del sys.modules[name]
    noted.clear()
    noted.update(said)


@pytest.fixture
def made_up(said):
    """What a program says of data that are made up, its lines from 4 on."""
    return lambda text, **asked: said(text, fake_data=True, **asked)
