"""Targets: transformers models (`torch_lm`) and exact toy models (`toy`)."""
