"""Formats: what files hold.

``open`` is the one function that users see. Each format is a file, which reads what its files hold as fields.
``files`` finds the files, ``registry`` tells formats apart, ``columns`` chooses among columns, and ``kinds`` makes a
dataset of fields.
"""
