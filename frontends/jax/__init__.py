"""JAX training steps -> workloads, without devices.

The idea: the step is traced and lowered on an abstract mesh (``lowering.py``), XLA's own SPMD
partitioner makes the per-device program in a child process (``partitioning.py``,
``partition/child.py``), and the core's reader and walker do the rest (``capturing.py``).  For a
target (``targets/``), XLA's GPU or TPU compiler replaces the partitioner (``compile/``).
"""
