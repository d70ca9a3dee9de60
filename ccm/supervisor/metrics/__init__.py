"""What `/metrics` shows, read from the parts of the supervisor when somebody asks."""
