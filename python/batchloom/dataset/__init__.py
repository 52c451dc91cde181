"""Datasets: what a sample is.

Each kind of data is a file, or a folder: ``windows`` of time series, and ``map`` for samples that are made on demand.
``base`` has the questions that a loader asks of any of them.
"""
