"""Rounds that a capture answers for: any policy, any k, greedy or sampled, and the oracle."""
