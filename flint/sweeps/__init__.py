"""Sweeps: the same step on many meshes and systems, resumable, one row per point.

The idea: every point runs as ``flint capture`` and ``flint simulate`` do, each in a process of its
own, so that no failure is the end of the sweep; a hash of a point's content is its name on disk.

    sweep = Sweep(("train.py:step",), ("4,2",), ("dgx-h100",), Path("out"))
    rows = run(sweep, "flint.cli.forks", jobs=4)
"""
