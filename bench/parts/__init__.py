"""The parts of a run, each a scenario with the figures that it has to show."""
