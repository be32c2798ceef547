"""Attention that a program writes out, as the fused kernels that frameworks run instead.

The idea: ``scores`` finds the scores, ``saved`` and ``split`` those that a backward pass reads,
``kernels`` decides what runs as one kernel, and ``fuse`` replaces it.

    fused = fuse_attention(graph)
"""
