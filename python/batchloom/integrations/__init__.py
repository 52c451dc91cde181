"""What trainers need beside a loader, one framework a file. Nothing here is imported unless it is used."""
