"""Measure batchloom beside its peers, a folder a chapter; see README.md."""
