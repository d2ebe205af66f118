"""What decides whether the next drafted token is accepted."""
