"""Post-execution traces -> workloads: what a profiler recorded, linked and converted.

The idea: ops and kernels are linked to their launches, their dependencies and their inputs; the
result is a workload like a captured one, with measured instead of modelled durations.
"""
