"""The page for people at `/`: what `status` says, as HTML that needs no script and nothing else."""
