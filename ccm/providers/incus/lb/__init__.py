"""Load balancers of Incus: OVN's, and forwards on bridges."""
