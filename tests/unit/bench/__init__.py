"""What measures is right: figures, pages, pictures and counts, without a cluster."""
