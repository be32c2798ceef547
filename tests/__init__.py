"""A package of its own, because other projects install one of this name beside Flint."""
