"""Worker processes: each runs one controller of a cloud controller manager."""
