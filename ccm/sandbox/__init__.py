"""A small cluster on one machine: API server, cloud and kubelets, to look at and to test."""
