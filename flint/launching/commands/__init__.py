"""Command lines of programs: launchers, jobs and shell scripts, and the variables that they set."""
