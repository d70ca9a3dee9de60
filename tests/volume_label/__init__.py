"""The volume-label duty and what it is made of."""
