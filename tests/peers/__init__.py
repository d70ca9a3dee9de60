"""Ours beside the real upstream controllers: the same cluster, the same cloud, compared."""
