"""An embedded Kubernetes API server for a first look and for tests; not a cluster.

It keeps objects in memory and behaves towards clients as kube-apiserver does; `tests/contract`
runs one suite against both. Known differences: unknown fields are stored instead of dropped,
there are no managedFields, quantities are not brought into canonical form, only the fields our
controllers touch are validated, and only JSON is spoken (no protobuf, no YAML).
"""
