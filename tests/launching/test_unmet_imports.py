"""Which packages a program lacks, by hand, for a program in several files."""

import sys
import textwrap

import pytest

from flint.launching.unmet_imports import unmet

FILES = {
    "train.py": """
        import json, os.path, numpy.nothing
        import lacking_one.part as part, lacking_two
        import layers.attention
        from helpers import *
        with open(__file__):
            class Late:
                from lacking_three import x
        try:
            import optional_one
        except ImportError:
            pass
        if part:
            import optional_two
        def later():
            import optional_three
    """,
    "helpers.py": "import train, helpers, lacking_two, lacking_four",
    "layers/__init__.py": "",
    "layers/attention.py": """
        from . import norms
        from .. import nothing_here
        from .nothing import x
        from layers.wrong import y
    """,
    "layers/norms.py": "import lacking_five",
    "layers/unused.py": "import optional_four",
    "layers/wrong.py": "import (",
}


@pytest.fixture
def program(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_every_package_that_is_lacking_is_named_with_its_first_line(program):
    before = set(sys.modules)
    assert unmet({str(program / "train.py")}) == {
        "lacking_one": "train.py:3",
        "lacking_two": "train.py:3",
        "lacking_three": "train.py:8",
        "lacking_four": "helpers.py:1",
        "lacking_five": "layers/norms.py:1",
    }
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] in FILES}


def test_files_that_cannot_be_read_lack_nothing(program):
    (program / "bytes.py").write_bytes(b"\xff\x00")
    assert unmet({str(program / "bytes.py"), str(program / "none.py")}) == {}
