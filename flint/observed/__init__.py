"""What a profiler recorded: columns of ops, kinds of files, steps, clocks."""
