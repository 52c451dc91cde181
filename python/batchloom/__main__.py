"""The program ``batchloom``: ``python -m batchloom compare lengths.npy``."""

from batchloom.command_line import main

if __name__ == "__main__":
    main()
