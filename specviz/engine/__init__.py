"""The engine wing: runs models and writes a trace. Needs the `engine` extra (torch)."""
