"""The conformance kit itself: that it passes what is right, finds what is wrong, and says so."""
