"""The provider of Proxmox."""
