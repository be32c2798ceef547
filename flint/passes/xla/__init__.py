"""What XLA's GPU compiler does before it has kernels, and how it fuses.

The idea: one module per rule of the compiler, each from block to block, with XLA's source beside
it; ``fuse`` runs them in the compiler's order.  docs/kernels.md lists them.

    kernels = fuse_as_xla(graph)
"""
