"""exllamav3 with specviz: load a quantised target with its drafter, or watch its generator."""
