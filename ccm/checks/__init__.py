"""What would keep a start with these flags from working: probed, evaluated, nothing written."""
