"""Habits of torch's ``DataLoader``: how code that was written for it works with a loader.

``options`` takes its arguments, ``attributes`` has its attributes, ``datasets`` reads its datasets, and ``lists`` reads
its samplers. Nothing here imports torch unless a program has.
"""
