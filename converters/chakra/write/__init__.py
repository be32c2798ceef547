"""A workload graph as one execution trace per rank."""
