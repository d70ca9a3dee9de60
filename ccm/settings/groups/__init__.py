"""The flags, a dataclass for each group of them; a flag is declared here and nowhere else."""
