"""Private names of jax and jaxlib, which come and go between versions.

The list has what was looked for in every version of ``make test-jax``, followed by the versions
that lack it, where the code asks for it first.  A new name belongs there once it has been looked
for, because the other versions are not installed where these tests run.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

ROOT = Path(__file__).parents[3]
LISTED = ROOT / "tests" / "data" / "jax_private_names.txt"
PRIVATE = ("jax._src", "jaxlib")


def names_in(text: str) -> set[str]:
    """What is imported from private modules, and attributes of what is imported."""
    tree, found, bound = ast.parse(text), set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PRIVATE):
            for item in node.names:
                bound[item.asname or item.name] = f"{node.module}.{item.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{bound.get(node.value.id, '')}.{node.attr}")
    return {*bound.values(), *(name for name in found if not name.startswith(".") and exists(name))}


def exists(name: str) -> bool:
    """Whether the installed version has it; otherwise a local variable has a module's name."""
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        outer, _, owner = module.rpartition(".")
        return hasattr(getattr(importlib.import_module(outer), owner, None), attribute)


def test_every_private_name_was_looked_for_in_all_known_versions():
    used = set().union(*(names_in(f.read_text()) for f in (ROOT / "frontends").rglob("*.py")))
    listed = {line.split()[0] for line in LISTED.read_text().splitlines()}
    new = sorted(used - listed)
    assert not new, f"look for {new} in the versions of make test-jax, then add to {LISTED.name}"
    assert not listed - used


def test_a_name_is_found_where_it_is_imported_and_where_it_is_read():
    text = "from jax._src import core as c\nfrom jax._src.sharding import X\nc.Jaxpr, c.none, x.y"
    assert names_in(text) == {"jax._src.core", "jax._src.sharding.X", "jax._src.core.Jaxpr"}
