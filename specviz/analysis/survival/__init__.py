"""How far drafts survive, what groups of rounds differ in, and how counting goes wrong."""
