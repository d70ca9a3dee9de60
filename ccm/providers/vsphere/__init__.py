"""vSphere: the virtual machines of one vCenter or of several, and nothing else."""
