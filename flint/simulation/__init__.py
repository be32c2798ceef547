"""The embedded simulator: how long a step takes, what is exposed, what memory it needs.

The idea: ranks that behave alike are simulated once, with the nodes and edges of their execution
traces, and with one slot each for compute and for communication (or for each communicator).

    result = simulate(workload, system="dgx-h100")
    result.step_seconds, result.exposed_communication_seconds, result.peak_memory_bytes
"""
