"""What a profiler saw: columns of ops, which file is what, steps, clocks."""
