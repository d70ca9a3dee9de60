"""What would not work after a start: found by looking, told with the remedy, nothing written."""
