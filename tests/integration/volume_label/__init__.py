"""The volume-label controller and what it is made of."""
