"""Worker processes: each performs one duty of a cloud controller manager."""
