// godo-strict reads requests from its input, a JSON object a line, into DigitalOcean's own types and
// refuses what these do not know. It prints what is wrong, a line each.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/digitalocean/godo"
)

type request struct {
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body"`
}

func typeOf(kind string) any {
	switch kind {
	case "load_balancers":
		return &godo.LoadBalancerRequest{}
	case "firewalls":
		return &godo.FirewallRequest{}
	case "tags":
		return &godo.TagCreateRequest{}
	case "resources":
		return &godo.TagResourcesRequest{}
	}
	return nil
}

func main() {
	input, read, wrong := json.NewDecoder(os.Stdin), 0, 0
	for {
		var one request
		if err := input.Decode(&one); err == io.EOF {
			break
		} else if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		read++
		into := typeOf(one.Kind)
		if into == nil {
			fmt.Printf("%s: godo has no such request\n", one.Kind)
			wrong++
			continue
		}
		strict := json.NewDecoder(bytes.NewReader(one.Body))
		strict.DisallowUnknownFields()
		if err := strict.Decode(into); err != nil {
			fmt.Printf("%s: %v in %s\n", one.Kind, err, one.Body)
			wrong++
		}
	}
	fmt.Printf("%d read, %d wrong\n", read, wrong)
	if wrong > 0 {
		os.Exit(1)
	}
}
