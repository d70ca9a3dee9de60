"""The HTTPS server of the supervisor: health, metrics and configuration, for those who may."""
