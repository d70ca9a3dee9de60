"""The commands a person types; one file a command."""
