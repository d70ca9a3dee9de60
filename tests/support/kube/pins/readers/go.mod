// Pins the readers of configuration files that upstream's controllers use; tests/support/kube/build.py builds it.
module ccm.test/readers

go 1.26.0

require (
	golang.org/x/net v0.61.0
	gopkg.in/gcfg.v1 v1.2.3
	gopkg.in/yaml.v2 v2.4.0
	gopkg.in/yaml.v3 v3.0.1
)

require (
	golang.org/x/text v0.43.0 // indirect
	gopkg.in/warnings.v0 v0.1.2 // indirect
)
