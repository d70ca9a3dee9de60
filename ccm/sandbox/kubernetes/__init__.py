"""An embedded Kubernetes API server for a first look and for tests; not a cluster.

It keeps objects in memory and does what cloud controllers and a person with kubectl meet of
kube-apiserver; `tests/integration/api_server` runs one suite against both. Known differences:
there are no managedFields and no server-side apply, nor dry runs, generated names, pages or lists
of the past;
quantities are not brought into canonical form, unknown fields are kept, names and the types of
fields are not validated, of what may not change only what our controllers write is kept; a
strategic merge patch orders no lists; everyone may do everything, Services have one address of
IPv4, namespaces are not deleted and volumes not protected, since no controller manager runs beside
it, and only JSON is spoken: no protobuf, YAML or partial metadata.
"""
