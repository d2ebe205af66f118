"""Drafters: n-gram, self-drafts and small language models, oracles."""
