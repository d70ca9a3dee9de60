"""Azure: Microsoft's own controller and ours in a lab each, one after the other."""
