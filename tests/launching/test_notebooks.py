"""Notebooks, in the form that Jupyter writes them (nbformat 4): their code as a program."""

from __future__ import annotations

import json
import traceback

import pytest

from flint.errors import UsageError
from flint.launching.notebooks import code_of
from flint.launching.notes import noted


def notebook(*sources, indent=1):
    """Code cells, between texts."""
    cells = []
    for source in sources:
        lines = source.splitlines(keepends=True)
        cells.append({"cell_type": "markdown", "metadata": {}, "source": ["x = 'text'\n", "y"]})
        cells.append({
            "cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
            "source": lines,
        })  # fmt: skip
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=indent).encode()


def names(data):
    found = {}
    exec(compile(code_of(data, "n.ipynb"), "n.ipynb", "exec"), found)
    return found


def test_cells_are_one_program():
    found = names(notebook("x = 1", "def f(y):\n    return x + y\n", "z = f(2)"))
    assert found["z"] == 3


def test_lines_have_the_numbers_of_the_file():
    data = notebook("x = 1\nx = 1", "\n# a\n\nraise KeyError\n")
    with pytest.raises(KeyError) as caught:
        names(data)
    number = traceback.extract_tb(caught.tb)[-1].lineno
    assert "raise KeyError" in data.decode().splitlines()[number - 1]


@pytest.mark.parametrize("indent", [None, 4])
def test_other_forms_of_the_file_have_the_same_code(indent):
    assert names(notebook("x = [1,\n     2]", "y = x * 2", indent=indent))["y"] == [1, 2, 1, 2]


def test_what_only_ipython_understands_is_left_out_and_noted():
    noted.clear()
    data = notebook(
        "%matplotlib inline\n!pip install flax\nif True:\n    %time\nx = 7 \\\n% 4",
        "%%time\ny = x + 1",
        "%%bash\nrm -rf /",
        "jax.numpy?",
    )
    found = names(data)
    assert (found["x"], found["y"]) == (3, 4)
    assert [text.partition(": ")[2] for text in noted] == [
        "%matplotlib inline is left out", "!pip install flax is left out", "%time is left out",
        "a cell for %%bash is left out", "jax.numpy? is left out",
    ]  # fmt: skip


def test_other_files_are_refused():
    for data in (b"{}", b"x = 1", b'{"cells": [1]}', b"\xff"):
        with pytest.raises(UsageError, match=r"n\.ipynb: not a notebook"):
            code_of(data, "n.ipynb")
