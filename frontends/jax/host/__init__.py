"""What a step does on the host: which compiled programs it calls, and which values it reads."""
