"""Workload graphs into other formats, and traces in other formats back."""
