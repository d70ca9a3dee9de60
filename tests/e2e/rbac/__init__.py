"""Least privilege: identities, the rights that they have, and what shows that they are exact."""
