"""PyTorch training steps: recorded on a fake cluster, rank by rank, and written as StableHLO.

The idea: the user's step runs unchanged on a device without arithmetic and a process group without
peers; the dispatched ops are recorded (``recording.py``) and emitted as a module whose kernels are
composites of real StableHLO.
"""
