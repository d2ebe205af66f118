"""What bounds tokens per round: which bound applies where, and what a trace measures of it."""
