// Azure Resource Manager on loopback for a cloud controller; README.md says what is true of it.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func (l *lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	p := r.URL.Path
	if strings.HasPrefix(p, "/lab/") {
		l.steer(w, r, raw)
		return
	}
	l.Lock()
	defer l.Unlock()
	l.settle()
	started := time.Now()
	status := 0
	defer func() {
		l.calls = append(l.calls, obj{"t": started.UnixMilli(), "method": r.Method, "path": p, "query": r.URL.RawQuery, "status": status, "agent": r.UserAgent()})
	}()
	line := r.Method + " " + p
	var f *fault
	if r.UserAgent() != "owner" {
		f = l.fault(line)
	}
	if f != nil && f.Delay > 0 {
		l.Unlock()
		time.Sleep(time.Duration(f.Delay * float64(time.Second)))
		l.Lock()
	}
	hang := func() {
		status = -1
		if h, ok := w.(http.Hijacker); ok {
			if c, _, err := h.Hijack(); err == nil {
				_ = c.Close()
			}
		}
	}
	if f != nil && f.Drop == "before" {
		hang()
		return
	}
	if f != nil && f.Status > 0 && !f.Async && f.Drop == "" {
		status = f.Status
		if f.After > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.After))
		}
		if f.Body != "" {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(f.Status)
			_, _ = io.WriteString(w, f.Body)
			return
		}
		sendError(w, f.Status, f.Code, f.Message)
		return
	}
	switch {
	case p == "/metadata/endpoints":
		status = 200
		send(w, 200, []obj{{"name": "AzureStackCloud", "resourceManager": l.url + "/", "authentication": obj{"audiences": []string{"https://management.lab/"}, "loginEndpoint": l.url + "/"}, "suffixes": obj{"storage": "storage.lab", "acrLoginServer": "cr.lab"}}})
		return
	case strings.HasSuffix(p, "/.well-known/openid-configuration") || strings.HasSuffix(p, "/discovery/instance"):
		base := l.url + "/" + strings.Split(strings.Trim(p, "/"), "/")[0]
		status = 200
		send(w, 200, obj{"token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize", "issuer": base + "/v2.0", "tenant_discovery_endpoint": base + "/v2.0/.well-known/openid-configuration"})
		return
	case strings.HasSuffix(p, "/oauth2/v2.0/token") || strings.HasSuffix(p, "/oauth2/token") || p == "/metadata/identity/oauth2/token":
		_ = json.Unmarshal(raw, &struct{}{})
		form := r.URL.Query()
		r.Body = io.NopCloser(bytes.NewReader(raw))
		if r.Method == "POST" {
			_ = r.ParseForm()
			form = r.Form
		}
		if r.Method == "POST" && form.Get("client_secret") != l.secret && !l.asserted(form) {
			status = 401
			send(w, 401, obj{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."})
			return
		}
		l.seq++
		tok := fmt.Sprintf("lab.%d.%d", l.seq, time.Now().UnixNano())
		l.tokens[tok] = time.Now().Add(l.tokenLife)
		status = 200
		send(w, 200, obj{"access_token": tok, "token_type": "Bearer", "expires_in": int(l.tokenLife.Seconds()), "ext_expires_in": int(l.tokenLife.Seconds()), "expires_on": fmt.Sprint(time.Now().Add(l.tokenLife).Unix()), "resource": "https://management.lab/"})
		return
	}
	auth := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if l.tokens[auth].Before(time.Now()) {
		status = 401
		w.Header().Set("WWW-Authenticate", `Bearer authorization_uri="`+l.url+`/", error="invalid_token"`)
		sendError(w, 401, "ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than current UTC time.")
		return
	}
	if i := strings.Index(p, "/operations/"); i > 0 {
		op := l.ops[p[i+len("/operations/"):]]
		if op == nil {
			status = 404
			sendError(w, 404, "NotFound", "no such operation")
			return
		}
		status = 200
		switch {
		case !op.over:
			w.Header().Set("Retry-After", "0")
			send(w, 200, obj{"status": "InProgress"})
		case op.fail != nil:
			send(w, 200, obj{"status": "Failed", "error": obj{"code": op.fail.Code, "message": op.fail.Message}})
		default:
			send(w, 200, obj{"status": "Succeeded"})
		}
		return
	}
	if m := regexp.MustCompile(`(?i)^/subscriptions/[^/]+/providers/(Microsoft\.Compute)$`).FindStringSubmatch(p); m != nil {
		status = 200
		send(w, 200, obj{"id": p, "namespace": "Microsoft.Compute", "registrationState": "Registered", "resourceTypes": []obj{{"resourceType": "virtualMachines", "locations": []string{l.region}, "apiVersions": []string{"2025-04-01"}, "zoneMappings": []obj{{"location": l.region, "zones": []string{"1", "2", "3"}}}}}})
		return
	}
	var body obj
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &body); err != nil {
			status = 400
			sendError(w, 400, "InvalidRequestContent", err.Error())
			return
		}
	}
	w.Header().Set("x-ms-ratelimit-remaining-subscription-reads", strconv.Itoa(l.reads))
	w.Header().Set("x-ms-ratelimit-remaining-subscription-writes", strconv.Itoa(l.writes))
	w.Header().Set("x-ms-request-id", fmt.Sprintf("%08x-0000-4000-c000-000000000000", l.seq))
	code, out, op, err := l.arm(r.Method, strings.TrimSuffix(p, "/"), r.URL.Query(), body, r.Header.Get("If-Match"), f)
	if err != nil {
		rf, ok := err.(refused)
		if !ok {
			rf = refused{500, "InternalServerError", err.Error()}
		}
		status = rf.status
		sendError(w, rf.status, rf.code, rf.message)
		return
	}
	if o, ok := out.(obj); ok {
		if err := l.checkAnswer(p, o); err != nil {
			l.badAnswers = append(l.badAnswers, line+": "+err.Error())
			status = 500
			sendError(w, 500, "LabAnswerOutsideContract", err.Error())
			return
		}
	}
	if f != nil && f.Drop == "after" {
		hang()
		return
	}
	if op != "" {
		w.Header().Set("Azure-AsyncOperation", op)
		w.Header().Set("Retry-After", "0")
		if code == 202 {
			w.Header().Set("Location", strings.Replace(op, "/operations/", "/operations/", 1))
		}
	}
	status = code
	send(w, code, out)
}

func (l *lab) checkAnswer(p string, o obj) error {
	for _, x := range append(list(o, "value"), o) {
		if t := kinds[low(str(x, "type"))]; t != nil {
			if err := pass(t, x, true); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lab) fault(line string) *fault {
	for i, f := range l.faults {
		if ok, _ := regexp.MatchString("(?i)"+f.Match, line); ok {
			f.Times--
			if f.Times <= 0 {
				l.faults = append(append([]*fault{}, l.faults[:i]...), l.faults[i+1:]...)
			}
			return f
		}
	}
	return nil
}

func (l *lab) steer(w http.ResponseWriter, r *http.Request, raw []byte) {
	l.Lock()
	defer l.Unlock()
	switch r.URL.Path {
	case "/lab/faults":
		if r.Method == "DELETE" {
			l.faults = nil
		} else if len(raw) > 0 {
			f := &fault{Match: ".*", Times: 1}
			_ = json.Unmarshal(raw, f)
			l.faults = append(l.faults, f)
		}
		send(w, 200, l.faults)
	case "/lab/settings":
		var s struct {
			Delay  *float64 `json:"delay"`
			Shout  *bool    `json:"shout"`
			Reads  *int     `json:"reads"`
			Revoke bool     `json:"revoke_tokens"`
			Secret string   `json:"secret"`
		}
		_ = json.Unmarshal(raw, &s)
		if s.Delay != nil {
			l.delay = time.Duration(*s.Delay * float64(time.Second))
		}
		if s.Shout != nil {
			l.shout = *s.Shout
		}
		if s.Reads != nil {
			l.reads = *s.Reads
		}
		if s.Revoke {
			l.tokens = map[string]time.Time{"lab-token": time.Now().Add(1000 * time.Hour)}
		}
		if s.Secret != "" {
			l.secret = s.Secret
		}
		send(w, 200, obj{})
	case "/lab/log":
		send(w, 200, l.calls)
		if r.Method == "DELETE" {
			l.calls = []obj{}
		}
	case "/lab/merge": // into a record as it is stored, past all rules
		var m struct {
			ID     string `json:"id"`
			Record obj    `json:"record"`
		}
		_ = json.Unmarshal(raw, &m)
		if o, ok := l.store[low(m.ID)]; ok {
			merge(o, m.Record)
		}
		send(w, 200, l.store[low(m.ID)])
	case "/lab/wipe":
		l.store, l.groups, l.ops, l.busy, l.faults, l.calls = map[string]obj{}, map[string]string{}, map[string]*operation{}, map[string]*operation{}, nil, nil
		l.priv, l.ip, l.delay, l.shout, l.reads, l.secret = 0, 0, 0, false, 12000, "secret"
		l.tokens = map[string]time.Time{"lab-token": time.Now().Add(1000 * time.Hour)}
		l.assertions = nil
		send(w, 200, obj{})
	default:
		l.settle()
		send(w, 200, obj{"objects": l.store, "bad_answers": l.badAnswers, "assertions": l.assertions, "members": l.allMembers()})
	}
}

func send(w http.ResponseWriter, code int, v any) {
	if v == nil {
		w.WriteHeader(code)
		return
	}
	b, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b)
}
func sendError(w http.ResponseWriter, code int, c, m string) {
	send(w, code, obj{"error": obj{"code": c, "message": m}})
}

func certificate(dir string) (tls.Certificate, error) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "azure lab"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	_ = os.WriteFile(filepath.Join(dir, "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func main() {
	port := flag.Int("port", 0, "of loopback; 0 is any that is free")
	dir := flag.String("dir", ".", "where ca.pem and the URL are written")
	region := flag.String("region", "westeurope", "")
	life := flag.Duration("token-life", time.Hour, "")
	flag.Parse()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	l := &lab{url: "https://" + listener.Addr().String(), region: *region, sub: "11111111-2222-4333-8444-555555555555", store: map[string]obj{}, groups: map[string]string{}, ops: map[string]*operation{}, busy: map[string]*operation{},
		tokens: map[string]time.Time{"lab-token": time.Now().Add(1000 * time.Hour)}, secret: "secret", calls: []obj{}, reads: 12000, writes: 1200, tokenLife: *life}
	cert, err := certificate(*dir)
	if err != nil {
		log.Fatal(err)
	}
	s := &http.Server{Handler: l, ErrorLog: log.New(io.Discard, "", 0)}
	_ = os.WriteFile(filepath.Join(*dir, "url"), []byte(l.url+"\n"), 0o644)
	log.Fatal(s.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{cert}})))
}

// asserted notes a signed or federated token, which the lab takes whatever it says.
func (l *lab) asserted(form map[string][]string) bool {
	if a := form["client_assertion"]; len(a) > 0 && a[0] != "" {
		l.assertions = append(l.assertions, a[0])
		return true
	}
	return false
}
