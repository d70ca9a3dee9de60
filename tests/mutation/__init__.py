"""The mutation run: which faults, put into the code one at a time, the unit tests do not notice."""
