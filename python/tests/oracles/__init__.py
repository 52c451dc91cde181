"""Slow and obvious definitions that the package is tested against, and devices that tests can run without."""
