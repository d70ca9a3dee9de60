"""Proxmox VE: machines of one cluster or of several, and nothing else."""
