"""Integrations with trainers, one framework a file. Nothing here is imported unless it is used."""
