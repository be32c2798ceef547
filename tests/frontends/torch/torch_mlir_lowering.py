"""torch-mlir's StableHLO for a case of ``lowering_cases``, made in a separate process.

torch-mlir ends the process on some ops, and brings a second MLIR with it, so it runs in a child
that is asked by case name, within a time limit, and started again when it has ended.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing
import os
import re
import tempfile

import torch

from tests.support.children import HUNG


class NotLowered(Exception):
    """torch-mlir has no StableHLO for this case: its message, or that it crashed or hung."""


def lowered(function, tensors, decomposed):
    """StableHLO text for a function of tensors.

    Args:
        decomposed: whether ops are first taken apart by the PyTorch decompositions that
            torch-mlir's importer takes when none are named.

    Raises:
        Exception: whatever torch-mlir or PyTorch's tracing raises.
    """
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch_mlir import fx
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    def flat(*arguments):
        out = function(*arguments)
        return (out,) if isinstance(out, torch.Tensor) else tuple(out)

    def traced(function, table):
        with torch.no_grad():
            return make_fx(
                torch.func.functionalize(function),
                decomposition_table=table,
                tracing_mode="fake",
                _allow_non_fake_inputs=True,
            )(*[tensor.clone() for tensor in tensors])

    def drop_copies_to_inputs(graph):
        for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
            node.replace_all_uses_with(node.args[1])
            graph.graph.erase_node(node)
        graph.recompile()

    graph = traced(flat, get_decomposition_table() if decomposed else {})
    drop_copies_to_inputs(graph)
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    if any(schema.is_mutable for target in targets if (schema := getattr(target, "_schema", None))):
        graph = traced(graph, {})  # a decomposition that writes in place
    return str(fx.stateless_fx_import(graph, output_type="stablehlo"))


def serve(connection):
    """Answers cases, each its name and whether it is decomposed, until the other end closes."""
    # torch-mlir prints each failed module and writes it to the temporary folder.
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    from tests.frontends.torch.lowering_cases import CASES

    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        while True:
            try:
                name, decomposed = connection.recv()
            except EOFError:
                return
            try:
                connection.send((lowered(*CASES[name], decomposed), None))
            except Exception as error:
                connection.send((None, f"{type(error).__name__}: {error}"))


class Child:
    """The process that lowers, started when first asked."""

    def __init__(self):
        self.process = None

    def start(self):
        spawned = multiprocessing.get_context("spawn")
        self.connection, other = spawned.Pipe()
        self.process = spawned.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def stop(self):
        if self.process is not None:
            self.connection.close()
            self.process.kill()
            self.process.join()
            self.process = None

    def ask(self, name, decomposed=False):
        if self.process is None:
            self.start()
        self.connection.send((name, decomposed))
        if not self.connection.poll(HUNG):
            self.stop()
            raise NotLowered(f"no answer within {HUNG} s")
        try:
            text, error = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode
            self.stop()
            raise NotLowered(f"crashed (exit code {code})") from None
        if error is not None:
            raise NotLowered(error)
        return text


@functools.cache
def child():
    """This process's child; it ends with it."""
    own = Child()
    atexit.register(own.stop)
    return own


def stablehlo_of(name, decomposed=None):
    """torch-mlir's StableHLO text for a case, with only StableHLO's ops in it.

    Args:
        decomposed: as for ``lowered``; None: only if the ops as they are cannot be lowered.

    Raises:
        NotLowered: it has none.
    """
    if decomposed is None:
        with contextlib.suppress(NotLowered):
            return stablehlo_of(name, decomposed=False)
    text = child().ask(name, decomposed is not False)
    # What torch-mlir leaves of the arith dialect is constants, in StableHLO's own syntax.
    text = re.sub(r"\barith\.constant dense", "stablehlo.constant dense", text)
    # A captured tensor is a blob: four bytes of alignment, then what dense<> takes as it is.
    blobs = dict(re.findall(r'(\w[\w.]*): "0x[0-9A-F]{8}([0-9A-F]*)"', text))
    text = re.sub(r"dense_resource<([\w.]+)>", lambda hit: f'dense<"0x{blobs[hit[1]]}">', text)
    return text.partition("{-#")[0]
