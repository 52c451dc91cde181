"""Arrays: how values come in from a framework, and go out to one.

Each framework is a file. ``frames`` reads frames, whose columns are arrays.
"""
