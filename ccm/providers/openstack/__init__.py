"""OpenStack: Keystone, Nova, Neutron, Octavia and Cinder of one region."""
