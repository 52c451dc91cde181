"""Arrays in and out, by framework; frames, whose columns are arrays."""
