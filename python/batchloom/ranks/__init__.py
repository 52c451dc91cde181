"""Ranks: which of the processes that share a run this one is.

``ranks`` reads launchers and frameworks, and ``mesh`` finds the ranks that take the same batches.
"""
