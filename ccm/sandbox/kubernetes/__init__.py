"""An embedded Kubernetes API server for a first look and for tests; not a cluster.

It keeps objects in memory and behaves towards clients as kube-apiserver does; `tests/contract`
runs one suite against both. Known differences: there are no managedFields and no server-side
apply, unknown fields are dropped only where `decoding` lists the known ones, quantities are not
brought into canonical form, only the fields our controllers touch are validated, everyone may do
everything, and only JSON is spoken: no protobuf, YAML or partial metadata.
`registry` does what deletions wait for, since no controller manager runs beside it.
"""
