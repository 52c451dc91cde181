"""Arrays: how values come in from a framework, and go out to one.

Each framework is a file, which fulfils the protocol in ``framework``, and a name in the registry ``frameworks``.
``frames`` reads frames, whose columns are arrays.
"""
