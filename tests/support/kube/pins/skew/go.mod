// Kubelets older than the API server: v1.34.mod and v1.36.mod pin what they are built of, and build.py picks one.
module ccm.test/labs/skew

go 1.24.0
