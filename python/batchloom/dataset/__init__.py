"""Datasets: one file for each kind of data."""
