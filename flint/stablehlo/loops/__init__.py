"""While loops: which value counts, how often they run, what they stack up."""
