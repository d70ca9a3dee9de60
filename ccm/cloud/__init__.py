"""What a cloud is to us: the provider interface, its registry, and the gate every call passes."""
