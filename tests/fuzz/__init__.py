"""Input that nobody would send on purpose: everything that reads from outside must survive it."""
