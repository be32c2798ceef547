"""Whether the ops of a module fit their operands and results."""
