"""The simulated cloud by itself: its commands, its process, and faults that other tests rely on."""
