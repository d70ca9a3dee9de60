"""GCE: Google's own provider and ours on a server each, one after the other."""
