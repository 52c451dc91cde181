"""The campaign: random configurations against oracles, faults, and a soak, for as long as there is time."""
