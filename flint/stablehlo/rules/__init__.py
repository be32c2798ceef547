"""The table of op rules: ``RULES[name]``; see ``rule.py`` for what an entry says."""
