"""Graphs that another rank of the run has lowered: taken from a folder, not lowered again.

The idea: Inductor keeps what it has compiled under a hash of everything that decides the result:
the graph, its inputs, the settings, the device.  Its keys, files and checks are used; instead of a
path in Inductor's cache, an entry has the generated program and its kernels.  Ranks that differ in
their graphs have other keys.

    share(folder)        # once per process; the folder is of one run of Flint, and private
    with settings(): ... # lowering in it looks there first
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from flint.frontends.torch.inductor import adapter, generated
from flint.frontends.torch.patching import always_around, replace

#: Inductor's setting, and its value in a process that shares.
_SETTING = "fx_graph_cache"
_shares = False


def share(folder: Path) -> None:
    """Share what this process lowers with the others that are given the same folder.

    Args:
        folder: where; it need not exist.  What is in it is unpickled: only processes of one run
            may write there.
    """
    global _shares
    results, graphs = adapter.kept_results(), adapter.kept_graphs()
    replace(results, "_get_tmp_dir", staticmethod(lambda: str(folder)))
    always_around(results, "prepare_key", _key)
    always_around(graphs, "__init__", _with_source)
    replace(graphs, "after_deserialization", _again)
    adapter.quick_keys()
    _shares = True


def settings() -> dict[str, bool]:
    """Inductor's settings for it."""
    return {_SETTING: _shares}


def _key(prepare: Any, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
    """The key of a graph; none if it has parts that Inductor cannot hash."""
    with contextlib.suppress(Exception):
        key, known = prepare(*args, **kwargs)
        return key, known
    return None, {}


def _with_source(init: Any, kept: Any, call: Any, graph: Any, *more: Any, **named: Any) -> None:
    init(kept, call, graph, *more, **named)
    kept.source_code, kept.generated = graph.generated.source, graph.generated


def _again(kept: Any, constants: Any) -> str:
    """Make a kept graph callable, as ``CompiledFxGraph.after_deserialization``."""
    module = generated.program(kept.generated, constants.unwrap(kept), kept.torchbind_constants)
    kept.current_callable = module.call
    return str(module.__file__)
