"""Sweeps: the same step on many meshes and systems, resumable, one row per point.

The idea: every point is a ``flint capture`` and a ``flint simulate``, each in a separate process,
so that a failure does not end the sweep; a hash of a point's content is its name on disk.

    sweep = Sweep(("train.py:step",), ("4,2",), ("dgx-h100",), Path("out"))
    rows = run(sweep, "flint.cli.forks", jobs=4)
"""
