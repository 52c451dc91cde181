"""Batches to the consumer: formed on the host, made on a device, or views on the data."""
