"""The host side of a step: the compiled programs that it calls, and the values that it reads."""
