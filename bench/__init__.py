"""Measure batchloom beside its peers, a folder a chapter; README.md says how."""
