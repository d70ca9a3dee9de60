"""The Kubernetes API as this project uses it: raw JSON over the asyncio transport."""
