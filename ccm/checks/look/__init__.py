"""Facts that several checks need; nothing is judged here."""
