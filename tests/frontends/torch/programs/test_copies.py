"""Ranks of a program are copies of one process, made where the program first asks which it is."""

from __future__ import annotations

import textwrap

import pytest

from tests.programs.comparing import captured

FIRST = """
    import os
"""
BEFORE = """
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    def note(what):
        with open("noted", "a") as file:
            file.write(what)
    note("b")
"""
AFTER = """
    rank = int(os.environ["RANK"])
    note("a")
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(4, 4, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2 + (rank == 5), 4, device="cuda")).sum().backward()
        optimizer.step()
"""


@pytest.fixture
def run(tmp_path):
    """Capture such a program on 8 ranks: what each has, and what the program's processes noted."""

    def run(between="", first=""):
        text = "".join(map(textwrap.dedent, (FIRST, first, BEFORE, between, AFTER)))
        (tmp_path / "train.py").write_text(text)
        found = captured(tmp_path, 8, "python", "train.py", imported=None)
        return found, (tmp_path / "noted").read_text()

    return run


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("", marks=pytest.mark.thorough),
        # As tqdm does when it is imported.
        "mine = {name: text for name, text in os.environ.items() if name.startswith('MINE')}",
        pytest.param(  # as fsspec does
            "mine = {name for name in dict(os.environ) if name.startswith('MINE')}",
            marks=pytest.mark.thorough,
        ),
        pytest.param(  # as PyTorch's builds for CUDA do when they are imported
            "import ctypes.util; ctypes.util.find_library('dl')", marks=pytest.mark.thorough
        ),
        pytest.param("import subprocess; subprocess.run(['true'])", marks=pytest.mark.thorough),
        pytest.param(  # as datasets has them by pyarrow
            "import pyarrow; kept = pyarrow.array([1], memory_pool=pyarrow.jemalloc_memory_pool())",
            marks=pytest.mark.thorough,
        ),
    ],
    ids=[
        "",
        "own variables",
        "own ones of a copy",
        "a library",
        "a process that has ended",
        "threads that return memory",
    ],
)
def test_what_comes_before_the_question_runs_once_and_every_rank_is_itself(run, first):
    found, noted = run(first=first)
    # A layer of 4 x 4, forward and for its weights: 2 x 2 FLOPs x rows x 16.
    assert [item["flops"] for item in found] == [
        2 * 2 * (2 + (rank == 5)) * 16 for rank in range(8)
    ]
    assert noted.count("b") == 1
    assert noted.count("a") > 2  # ranks are recorded, rank 5 among them


@pytest.mark.thorough
def test_imports_behind_an_early_question_run_once_as_well(run, tmp_path):
    """As Megatron-LM's programs do, which ask before they import anything large."""
    (tmp_path / "heavy.py").write_text("open('noted', 'a').write('i')\n")
    _, noted = run(first="rank = int(os.environ.get('RANK', 0))\nimport heavy\n")
    assert noted.count("i") == 1
    assert noted.count("b") == noted.count("a") > 2


@pytest.mark.thorough
def test_a_module_that_asks_while_it_is_imported_does_so_in_every_rank(run, tmp_path):
    (tmp_path / "asks.py").write_text(
        "import os\nopen('noted', 'a').write('<%s>' % os.environ['RANK'])\n"
    )
    _, noted = run(first="rank = int(os.environ.get('RANK', 0))\nimport asks\n")
    assert noted.count("<5>") == noted.count("<0>") == 1
    assert noted.count("<") == noted.count("a") > 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("between", "repeated"),
    [
        # A thread's start is the last moment at which there is no other; a file's position is
        # common to all copies.
        ("import threading; threading.Thread(target=len, args=('',)).start(); note('c')", "c"),
        ("kept = open('train.py')", "b"),
        ("kept = os.pipe()", "b"),
        # Autograd has a thread for each device, without which a copy can do no backward pass.
        ("torch.ones(4, device='cuda', requires_grad=True).sum().backward()", "b"),
        (
            "from concurrent.futures import ThreadPoolExecutor; pool = ThreadPoolExecutor(1); "
            "pool.submit(len, '').result(); note('c')",
            "c",
        ),
    ],
    ids=["thread", "open file", "pipe", "backward pass", "pool"],
)
def test_what_copies_would_not_have_is_in_every_process(run, between, repeated):
    _, noted = run(between)
    assert noted.count(repeated) == noted.count("a") > 2


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(
            """
    from torch.utils.data import DataLoader
    rows = iter(DataLoader(range(64), num_workers=2))
    assert [int(next(rows)) for _ in range(64)] == list(range(64))
    """,
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            """
    import multiprocessing
    child = multiprocessing.Process(target=len, args=("",))
    child.start(), child.join()
    assert child.exitcode == 0
    """,
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["data loader", "process"],
)
def test_each_rank_starts_the_processes_of_a_program_itself(run, between):
    """Only the process that made a ``Process`` may start it, and its pipes are its own."""
    _, noted = run(between + "note('c')\n")
    assert noted.count("c") == noted.count("a") > 2
    assert noted.count("b") == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "first",
    [
        "kept = dict(os.environ)",
        "for name, text in os.environ.items():\n    if name == 'RANK': print(int(text))",
    ],
    ids=["kept", "looked at"],
)
def test_a_variable_that_says_the_rank_is_in_no_copy(run, first):
    _, noted = run(first=first)
    assert noted.count("b") == noted.count("a") > 2
