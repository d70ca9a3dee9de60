"""The service controller: its decisions, and what it does to a cluster and a cloud in memory."""
