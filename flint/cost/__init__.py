"""Hardware, and what a kernel or a collective costs on it."""
