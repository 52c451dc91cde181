"""Facts of each sample: how one sample differs from another.

They are its size, its class or key, the number of its labels, its weight in the draws of an epoch, and whether it is
banned. ``restore_order`` puts the results of samples in the order of the dataset.
"""
