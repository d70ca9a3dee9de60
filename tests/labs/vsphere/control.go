package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// httpFault spoils whole HTTP requests in front of the simulator.
type httpFault struct {
	Match   string `json:"match"`    // a SOAP method, or a piece of the path; empty: all
	Body    string `json:"body"`     // a piece of the request's body; empty: any
	Status  int    `json:"status"`   // answer with this status instead (503, 500, 401)
	DelayMS int    `json:"delay_ms"` // wait first
	Drop    bool   `json:"drop"`     // close the connection with no answer
	Count   int    `json:"count"`    // this many times; 0: until cleared

	Text       string      `json:"text"`        // the body of an answer with `status`
	RetryAfter string      `json:"retry_after"` // its header of this name
	Replace    [][2]string `json:"replace"`     // edit the simulator's answer: each first text becomes the second
	left       int
}

var method = regexp.MustCompile(`<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)`)

// faults counts each request by SOAP method or by REST path, then spoils it or lets it through.
func (l *lab) faults(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Method + " " + ids.ReplaceAllString(r.URL.Path, "/{id}")
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.URL.Path == "/sdk" {
			if found := method.FindSubmatch(body); found != nil {
				name = string(found[1])
			}
		}
		l.mu.Lock()
		l.calls[name]++
		var hit *httpFault
		for _, fault := range l.http {
			if strings.Contains(name, fault.Match) && bytes.Contains(body, []byte(fault.Body)) && (fault.Count == 0 || fault.left > 0) {
				fault.left--
				hit = fault
				break
			}
		}
		l.mu.Unlock()
		if hit != nil {
			time.Sleep(time.Duration(hit.DelayMS) * time.Millisecond)
			if hit.Drop {
				panic(http.ErrAbortHandler)
			}
			if hit.Status != 0 {
				if hit.RetryAfter != "" {
					w.Header().Set("Retry-After", hit.RetryAfter)
				}
				w.WriteHeader(hit.Status)
				_, _ = io.WriteString(w, hit.Text)
				return
			}
			if len(hit.Replace) > 0 {
				edited(next, w, r, hit.Replace)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// edited answers as the simulator does, with some texts replaced: what it cannot be made to say by itself.
func edited(next http.Handler, w http.ResponseWriter, r *http.Request, replace [][2]string) {
	recorder := httptest.NewRecorder()
	next.ServeHTTP(recorder, r)
	body := recorder.Body.String()
	for _, pair := range replace {
		body = strings.ReplaceAll(body, pair[0], pair[1])
	}
	for name, values := range recorder.Header() {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(recorder.Code)
	_, _ = io.WriteString(w, body)
}

var ids = regexp.MustCompile(`/(id:)?(urn:vmomi:|vm-|[0-9a-f]{8}-)[^/]*`)

// control: GET /calls, DELETE /calls, POST and DELETE /faults (HTTP), POST and DELETE /soap-faults,
// DELETE /sessions (every SOAP session but the lab's), GET /vms, POST /vms/{name} {power,guest,delete,host,connection,uuid}.
func (l *lab) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		reply(w, l.calls, nil)
	})
	mux.HandleFunc("DELETE /calls", func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.calls = map[string]int{}
		l.mu.Unlock()
		reply(w, nil, nil)
	})
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		fault := &httpFault{}
		err := strict(r, fault)
		fault.left = fault.Count
		l.mu.Lock()
		if err == nil {
			l.http = append(l.http, fault)
		}
		l.mu.Unlock()
		reply(w, nil, err)
	})
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.http = nil
		l.mu.Unlock()
		reply(w, nil, nil)
	})
	mux.HandleFunc("POST /soap-faults", func(w http.ResponseWriter, r *http.Request) {
		rule := &simulator.FaultInjectionRule{MethodName: "*", ObjectType: "*", ObjectName: "*", Probability: 1, Enabled: true}
		err := strict(r, rule)
		if err == nil {
			l.model.Service.AddFaultRule(rule)
		}
		reply(w, nil, err)
	})
	mux.HandleFunc("DELETE /soap-faults", func(w http.ResponseWriter, r *http.Request) {
		l.model.Service.ClearFaultRules()
		reply(w, nil, nil)
	})
	mux.HandleFunc("DELETE /sessions", func(w http.ResponseWriter, r *http.Request) {
		ended, err := l.endSessions(r.Context())
		reply(w, map[string]int{"ended": ended}, err)
	})
	mux.HandleFunc("GET /vms", func(w http.ResponseWriter, r *http.Request) {
		all := []map[string]any{}
		for _, vm := range l.vms() {
			all = append(all, map[string]any{"name": vm.Name, "hostname": vm.Guest.HostName, "uuid": vm.Config.Uuid,
				"power": vm.Runtime.PowerState, "moref": vm.Self.Value, "host": vm.Runtime.Host.Value})
		}
		reply(w, all, nil)
	})
	mux.HandleFunc("POST /vms", func(w http.ResponseWriter, r *http.Request) {
		var wanted struct {
			Names []string `json:"names"`
		}
		err := strict(r, &wanted)
		var made []map[string]any
		if err == nil {
			made, err = l.create(r.Context(), wanted.Names)
		}
		reply(w, made, err)
	})
	mux.HandleFunc("DELETE /vms", func(w http.ResponseWriter, r *http.Request) {
		reply(w, nil, l.destroyAll(r.Context()))
	})
	mux.HandleFunc("POST /vms/{name}", func(w http.ResponseWriter, r *http.Request) {
		var change struct {
			Power      string `json:"power"` // on, off, suspend
			Guest      *guest `json:"guest"`
			Delete     bool   `json:"delete"`
			Host       string `json:"host"`       // live migration to the host of this name
			Connection string `json:"connection"` // connected, disconnected, inaccessible, invalid, orphaned
			UUID       string `json:"uuid"`       // as a clone made badly, two VMs may have one
			Name       string `json:"name"`       // in the inventory
			Template   *bool  `json:"template"`
			MemoryMB   int32  `json:"memory_mb"`
			GuestID    string `json:"guest_id"`
			Metadata   string `json:"metadata"` // guestinfo.metadata, in base64
		}
		err := strict(r, &change)
		vm := l.vm(r.PathValue("name"))
		if err == nil && vm == nil {
			err = fmt.Errorf("no VM %q", r.PathValue("name"))
		}
		if err != nil {
			reply(w, nil, err)
			return
		}
		if change.Guest != nil {
			l.setGuest(vm, *change.Guest)
		}
		if change.Connection != "" {
			state := types.VirtualMachineConnectionState(change.Connection)
			l.set(vm, map[string]any{"runtime.connectionState": state, "summary.runtime.connectionState": state})
		}
		if change.UUID != "" {
			l.set(vm, map[string]any{"config.uuid": change.UUID, "summary.config.uuid": change.UUID})
		}
		if change.Name != "" {
			l.set(vm, map[string]any{"name": change.Name, "summary.config.name": change.Name})
		}
		if change.Template != nil {
			l.set(vm, map[string]any{"config.template": *change.Template, "summary.config.template": *change.Template})
		}
		if change.MemoryMB != 0 {
			l.set(vm, map[string]any{"summary.config.memorySizeMB": change.MemoryMB})
		}
		if change.GuestID != "" {
			l.set(vm, map[string]any{"summary.config.guestId": change.GuestID})
		}
		if change.Metadata != "" {
			l.set(vm, map[string]any{"config.extraConfig": []types.BaseOptionValue{
				&types.OptionValue{Key: "guestinfo.metadata", Value: change.Metadata},
				&types.OptionValue{Key: "guestinfo.metadata.encoding", Value: "base64"},
			}})
		}
		reply(w, nil, l.act(r.Context(), vm, change.Power, change.Host, change.Delete))
	})
	return mux
}

func (l *lab) act(ctx context.Context, vm *simulator.VirtualMachine, power, host string, remove bool) error {
	client, err := govmomi.NewClient(ctx, l.url, true)
	if err != nil {
		return err
	}
	defer client.Logout(ctx)
	machine := object.NewVirtualMachine(client.Client, vm.Self)
	steps := map[string]func(context.Context) (*object.Task, error){
		"on": machine.PowerOn, "off": machine.PowerOff, "suspend": machine.Suspend}
	var tasks []*object.Task
	if step, known := steps[power]; known {
		task, err := step(ctx)
		if err != nil {
			return err
		}
		tasks = append(tasks, task)
	} else if power != "" {
		return fmt.Errorf("power is on, off or suspend, not %q", power)
	}
	if host != "" {
		for _, e := range l.model.Map().All("HostSystem") {
			if e.Entity().Name != host {
				continue
			}
			ref := e.Reference()
			task, err := machine.Relocate(ctx, types.VirtualMachineRelocateSpec{Host: &ref}, types.VirtualMachineMovePriorityDefaultPriority)
			if err != nil {
				return err
			}
			tasks = append(tasks, task)
		}
	}
	for _, task := range tasks {
		if err := task.Wait(ctx); err != nil {
			return err
		}
	}
	if remove {
		return destroy(ctx, client.Client, vm.Self)
	}
	return nil
}

func destroy(ctx context.Context, client *vim25.Client, ref types.ManagedObjectReference) error {
	machine := object.NewVirtualMachine(client, ref)
	if off, err := machine.PowerOff(ctx); err == nil {
		_ = off.Wait(ctx) // off already is as good
	}
	task, err := machine.Destroy(ctx)
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

func (l *lab) endSessions(ctx context.Context) (int, error) {
	client, err := govmomi.NewClient(ctx, l.url, true)
	if err != nil {
		return 0, err
	}
	defer client.Logout(ctx)
	manager := session.NewManager(client.Client)
	own, err := manager.UserSession(ctx)
	if err != nil {
		return 0, err
	}
	var all mo.SessionManager
	err = property.DefaultCollector(client.Client).RetrieveOne(ctx, *client.ServiceContent.SessionManager, []string{"sessionList"}, &all)
	if err != nil {
		return 0, err
	}
	var keys []string
	for _, other := range all.SessionList {
		if other.Key != own.Key {
			keys = append(keys, other.Key)
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	return len(keys), manager.TerminateSession(ctx, keys)
}

func strict(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func reply(w http.ResponseWriter, value any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		value = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(value)
}

// selfSigned returns a certificate for 127.0.0.1 and localhost, and the same in PEM for the client to trust.
func selfSigned() (*tls.Config, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "vsphere-lab"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return config, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
