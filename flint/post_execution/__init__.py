"""Post-execution traces -> workloads: what a profiler recorded, linked and converted.

The idea: ops and kernels are linked to who issued them, what they waited for and what they read;
the result is a workload like a captured one, with measured durations in the place of modelled ones.
"""
