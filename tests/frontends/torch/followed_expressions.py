"""Expressions of a rank, asked as a program's own lines ask, against Python on every rank."""

import numpy as np
import torch

from flint.frontends.torch import context
from flint.frontends.torch.context import Capture
from flint.frontends.torch.shims import own_sizes
from flint.frontends.torch.shims.own_values import OwnRank
from flint.launching import followed_functions
from flint.launching.followed import followed_code

WORLD = 20  # more than are told apart by each value that is not followed
OWN, ASKED = 3, 7
IMPORTS = (
    "import array, base64, bisect, hashlib, itertools, json, math, operator, pickle, re, struct\n"
    "import argparse, ast, binascii, collections, ctypes, datetime, os, pathlib, shlex, string\n"
    "from pathlib import Path; import numpy as np, torch, urllib.parse, yaml, zlib\nW = 20\n"
    "def changed(path, more):\n    path /= more\n    return path\n"
    "def parsed(parser, words):\n    parser.add_argument('--stage', type=int)\n"
    "    return parser.parse_args(words)\n"
)


def _function(expression, compiled, more=""):
    names = dict(followed_functions.FUNCTIONS)
    exec(compiled(f"{IMPORTS}{more}def f(rank):\n    return {expression}\n"), names)
    return names["f"]


def plainly(expression):
    """What Python makes of it on every rank."""
    f = _function(expression, lambda source: source)
    return [f(rank) for rank in range(WORLD)]


def asked(expression, more=""):
    """What it is on the own rank, with what was asked about ranks on the way."""
    f = _function(expression, lambda source: followed_code(source.encode(), "train.py"), more)
    context.begin(Capture((WORLD,)))
    with own_sizes.seeing():
        found = f(OwnRank(OWN, np.arange(WORLD)))
    return found, context.capture()


def _same(one, other):
    return bool(np.all(one == other)) and type(other) is not torch.Tensor


def verdict(expression):
    """How a program that compares it with what it is on rank 7 tells ranks apart.

    "followed": exactly; "told": with a note that more is not seen; "" where it does not.
    """
    every = plainly(expression)
    right = [_same(item, every[ASKED]) for item in every]
    found, seen = asked(
        f"bool(np.all(({expression}) == {every[ASKED]!r}))".replace("np.int64(", "np.int64(")
    )
    assert found == right[OWN]
    kinds = [item.kinds() for item in seen.evidence.all()]
    cells = {}
    for rank, answer in enumerate(right):
        cells.setdefault(tuple(int(item[rank]) for item in kinds), set()).add(answer)
    if all(len(answers) == 1 for answers in cells.values()):
        return "followed"
    return "told" if seen.unseen else ""
