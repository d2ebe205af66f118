"""Drafters of one capture side by side."""
