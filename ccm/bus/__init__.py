"""The wire between the supervisor and its workers: ZeroMQ sockets that carry JSON."""
