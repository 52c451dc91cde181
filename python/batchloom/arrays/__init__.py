"""Arrays: how values are read from a framework, and handed to one.

Each framework is a file, which fulfils the protocol in ``framework``, and a name in the registry ``frameworks``.
``frames`` reads frames, whose columns are arrays.
"""
