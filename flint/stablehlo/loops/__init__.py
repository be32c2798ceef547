"""While loops: their counters, their trip counts, and what they store per iteration."""
