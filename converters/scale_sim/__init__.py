"""SCALE-Sim: a workload's matrix products as its input files, and its report as durations."""
