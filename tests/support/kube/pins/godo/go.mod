// Pins DigitalOcean's client, whose types our requests are read with; tests/support/kube/build.py builds it.
module ccm.test/godo

go 1.25

require github.com/digitalocean/godo v1.204.0

require (
	github.com/google/go-querystring v1.1.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.7 // indirect
	golang.org/x/oauth2 v0.27.0 // indirect
	golang.org/x/time v0.6.0 // indirect
)
