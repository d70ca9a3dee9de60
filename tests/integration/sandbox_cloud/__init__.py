"""The simulated cloud by itself: what any client of it can rely on."""
