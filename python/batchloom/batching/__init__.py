"""Rules: which samples share a batch.

``rules`` has them, ``calibrate`` measures the cost of a batch, and ``compare`` sets rules side by side.
"""
