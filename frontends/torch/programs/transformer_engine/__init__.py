"""Transformer Engine without its compiled extension: the package's own Python, on kernels of
PyTorch.

The idea: Transformer Engine is Python around a CUDA extension, ``transformer_engine_torch``.  The
Python decides what a layer exchanges, keeps, recomputes and quantises, and it installs anywhere
(``pip install --no-deps transformer_engine``).  So that runs as it is; only the extension's
functions are stand-ins, each one kernel of the same operands and results.
"""
