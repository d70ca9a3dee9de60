"""Tests of the provider for AWS against moto, a third-party emulator, in a process of its own."""
