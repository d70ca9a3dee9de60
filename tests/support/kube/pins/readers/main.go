// config-readers reads texts with the readers of configuration files that upstream's controllers use,
// and says by which proxy of an environment they would reach a URL.
// Its input is objects of JSON, {"reader", "text" (base64)}; it answers each with {"error", "found"}.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"golang.org/x/net/http/httpproxy"
	"gopkg.in/gcfg.v1"
	yaml2 "gopkg.in/yaml.v2"
	yaml3 "gopkg.in/yaml.v3"
)

type question struct {
	Reader string
	Text   []byte
}

type answer struct {
	Error string `json:"error"`
	Found any    `json:"found"`
}

// A duration as OpenStack's controller has it.
type duration struct{ time.Duration }

func (d *duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

type iniSection struct {
	Text   string   `gcfg:"text" json:"text"`
	Switch bool     `gcfg:"is-on" json:"is_on"`
	List   []string `gcfg:"item" json:"item"`
	Count  int      `gcfg:"count" json:"count"`
	Wait   duration `gcfg:"wait-time" json:"wait_time"`
}

type iniFile struct {
	Global iniSection
	Named  map[string]*iniSection
}

// As vSphere's controller has it.
type vcenter struct {
	User        string   `yaml:"user" json:"user"`
	Password    string   `yaml:"password" json:"password"`
	Server      string   `yaml:"server" json:"server"`
	Port        uint     `yaml:"port" json:"port"`
	Insecure    bool     `yaml:"insecureFlag" json:"insecureFlag"`
	Datacenters []string `yaml:"datacenters" json:"datacenters"`
}

type vsphereFile struct {
	Global  vcenter             `yaml:"global" json:"global"`
	VCenter map[string]*vcenter `yaml:"vcenter" json:"vcenter"`
	Labels  struct {
		Zone   string `yaml:"zone" json:"zone"`
		Region string `yaml:"region" json:"region"`
	} `yaml:"labels" json:"labels"`
}

// As Proxmox' controller has it.
type proxmoxFile struct {
	Features struct {
		Provider string `yaml:"provider" json:"provider"`
		Network  struct {
			Mode string `yaml:"mode" json:"mode"`
			IPv6 bool   `yaml:"ipv6_support_disabled" json:"ipv6_support_disabled"`
		} `yaml:"network" json:"network"`
	} `yaml:"features" json:"features"`
	Clusters []*struct {
		URL      string `yaml:"url" json:"url"`
		Region   string `yaml:"region" json:"region"`
		TokenID  string `yaml:"token_id" json:"token_id"`
		Secret   string `yaml:"token_secret" json:"token_secret"`
		Insecure bool   `yaml:"insecure" json:"insecure"`
	} `yaml:"clusters" json:"clusters"`
}

// Which proxy Go's HTTP client uses for a URL in an environment.
type proxied struct {
	URL     string
	Proxies httpproxy.Config
}

func proxyFor(text []byte) (string, error) {
	var asked proxied
	if err := json.Unmarshal(text, &asked); err != nil {
		return "", err
	}
	target, err := url.Parse(asked.URL)
	if err != nil {
		return "", err
	}
	found, err := asked.Proxies.ProxyFunc()(target)
	if found == nil {
		return "", err
	}
	return found.String(), err
}

func read(one question) answer {
	switch one.Reader {
	case "httpproxy":
		found, err := proxyFor(one.Text)
		return answer{text(err), found}
	case "gcfg":
		var found iniFile
		err := gcfg.FatalOnly(gcfg.ReadInto(&found, bytes.NewReader(one.Text)))
		return answer{text(err), found}
	case "yaml2":
		var found vsphereFile
		err := yaml2.Unmarshal(one.Text, &found)
		return answer{text(err), found}
	case "yaml3":
		var found proxmoxFile
		decoder := yaml3.NewDecoder(bytes.NewReader(one.Text))
		decoder.KnownFields(true)
		err := decoder.Decode(&found)
		if err == io.EOF {
			err = nil
		}
		return answer{text(err), found}
	}
	return answer{"no such reader", nil}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func main() {
	input, output := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var one question
		err := input.Decode(&one)
		if err == io.EOF {
			return
		}
		if err == nil {
			err = output.Encode(read(one))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}
