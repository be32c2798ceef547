"""A program as ``flint run`` captures it, against the same program really run on gloo processes.

The idea: either side is a list, one item per rank: the collectives of each group of ranks and the
messages to and from each rank, in order (kind, and the bytes that the rank gives or gets), and FLOPs
of matrix products.  The two are equal.

    found, run = both(program, folder); assert found == run
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from flint import load
from flint.graph.work import Unit
from tests.support.children import HUNG
from tests.support.command_line import flint

HERE = Path(__file__).parent
#: What PyTorch calls a collective that is known by another name.
KINDS = {"collective_broadcast": "broadcast", "ragged_all_to_all": "all_to_all"}
#: Products whose FLOPs are compared, without the overload.
PRODUCTS = {
    *(f"aten.{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm")),
    "transformer_engine.product_with_bias_gradient",
}


def both(program, folder):
    """What is captured of a row of the table, and what really runs."""
    if program.prepare:
        prepare = [sys.executable, str(HERE / program.prepare)]
        subprocess.run(prepare, cwd=folder, check=True, timeout=HUNG)
    words = ("python", *program.command)
    found = captured(folder, program.ranks, *words, options=program.options, imported=None)
    return found, real(folder, program.ranks, *program.real, *program.command)


def captured(folder, world, *program, options=(), imported="torch"):
    """What the step of every rank has: [{"collectives": ..., "flops": ...}, ...]."""
    out = folder / "out"
    words = ("--world", world, *options, "-o", out, "--", *program)
    done = flint("run", *words, cwd=folder, imported=imported)
    assert done.returncode == 0, done.stderr
    return of_ranks(load(out), PRODUCTS)


def of_ranks(workload, products=None):
    """The same of a workload; which ops are products, or all that the matrix unit does."""
    by_rank = {
        int(rank): _of_rank(program, int(rank), products)
        for program in workload.programs
        for rank in program.ranks.array()
    }
    return [by_rank[rank] for rank in sorted(by_rank)]


def _of_rank(program, rank, products):
    collectives, flops = defaultdict(list), 0
    for graph, times in program.graph.walk():
        for node in graph:
            if node.communication is not None:
                where, kind = described(node.communication, rank)
                if where:
                    size = sum(node.communication.operand_bytes)
                    collectives[where] += [[kind, size]] * times
            elif products is None or node.op.rpartition(".")[0] in products:
                work = (item for item in node.work.items if item.unit is Unit.MATMUL)
                flops += times * sum(item.flops for item in work)
    return {"collectives": dict(collectives), "flops": flops}


def described(sent, rank):
    """With whom a rank communicates, and how; nothing where it is alone or does not take part."""
    if sent.permutation is not None:
        peers = {"to": sent.permutation.target[rank], "from": sent.permutation.source[rank]}
        found = [f"{way} {peer}" for way, peer in peers.items() if peer >= 0]
        return " ".join(found), "message"
    members = sorted(sent.groups.members(rank))
    where = f"over {', '.join(map(str, members))}" if len(members) > 1 else ""
    return where, KINDS.get(sent.kind, sent.kind)


def real(folder, world, *program):
    """The same of a real run; ``program`` is what ``observe.py`` takes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = [
        subprocess.Popen(
            [sys.executable, str(HERE / "observe.py"), str(folder / f"{rank}.json"), *program],
            cwd=folder, env=os.environ | ranked(rank, world, port), text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]  # fmt: skip
    with ThreadPoolExecutor(world) as readers:
        ends = [readers.submit(_end_of, process) for process in running]
        first, _ = wait(ends, return_when=FIRST_EXCEPTION)
        for process in running:  # those that wait for one that failed
            process.kill()
    for end in (*first, *ends):
        end.result()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def _end_of(process):
    words = process.communicate(timeout=HUNG)[1]
    assert process.returncode == 0, words[-3000:]


def ranked(rank, world, port):
    """The variables of a rank, and none where there is only one process."""
    path = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "GLOO_SOCKET_IFNAME": "lo",
        "TORCHDYNAMO_DISABLE": "1",  # what is compiled computes the same products
        "TRITON_INTERPRET": "1",  # kernels of a program's own run on the CPU
    }  # fmt: skip
    if world == 1:
        return path
    return path | {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
