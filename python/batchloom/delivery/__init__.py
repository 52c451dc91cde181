"""Deliveries: which way batches go to the consumer.

They are formed on the host, made on a device, or views on the data. ``placement`` knows where the data lies, and
``choose`` takes one of them.
"""
