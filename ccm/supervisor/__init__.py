"""The parent process: lease, watches, cloud budget and the life of the workers."""
