"""Workload graphs: nodes, values, edges, and the columns in which they are stored."""
