"""The trainers that runs are killed in, one a file: ``work`` trains a rank, or ``start`` starts all."""
