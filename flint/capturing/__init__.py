"""The user's step or saved file in, a workload out: ``@flint.capture``, ``flint.convert``."""
