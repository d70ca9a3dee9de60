"""An embedded Kubernetes API server for a first look and for tests; not a cluster.

It keeps objects in memory and behaves towards clients as kube-apiserver does; `tests/contract`
runs one suite against both. Known differences: there are no managedFields and no server-side
apply, nor dry runs, generated names or lists of the past, quantities are not brought into canonical
form, unknown fields are kept, only the fields our controllers touch are validated, everyone may do
everything, Services have one address of IPv4, namespaces are not deleted and volumes not protected,
since no controller manager runs beside it, and only JSON is spoken: no protobuf, YAML or partial
metadata.
"""
