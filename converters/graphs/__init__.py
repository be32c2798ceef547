"""Workload graphs as networkx graphs, GraphML, DOT and data frames."""
