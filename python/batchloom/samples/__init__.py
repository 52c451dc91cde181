"""Facts of each sample: how one sample differs from another.

They are its size, its class or key, the number of its labels, its weight in the draws of an epoch, and whether it is
banned.
"""
