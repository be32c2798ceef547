"""What each rank executes: the shared meaning of nodes and edges for traces and for simulation.

The idea: a program is unrolled, and each of its instances becomes its form on a given rank: a
compute node, a collective, a send, a receive, or nothing.  Ranks that do the same share one
structure.  The ET writer writes these nodes, the simulator runs them.
"""
