"""Datasets: what a sample is.

Each kind of data is a file, or a folder: ``windows`` of time series, and ``map`` for samples that are made on demand.
``base`` is what users see of any of them, ``samples`` has the questions that the other stages ask of what a dataset
holds, ``on_device`` the answers to a device that the kinds have in common, and ``location`` says where samples lie.
"""
