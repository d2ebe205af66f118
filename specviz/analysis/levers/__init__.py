"""What moves tokens per round and speed: policies, trees, switching, lossy rules."""
