// What the server holds, and JSON without types.
package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

type obj = map[string]any

type refused struct {
	status        int
	code, message string
}

func (r refused) Error() string { return r.code + ": " + r.message }
func no(status int, code, format string, a ...any) error {
	return refused{status, code, fmt.Sprintf(format, a...)}
}

type fault struct {
	Match   string  `json:"match"`
	Times   int     `json:"times"`
	Status  int     `json:"status"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Body    string  `json:"body"`
	After   int     `json:"retry_after"`
	Delay   float64 `json:"delay"`
	Drop    string  `json:"drop"` // "before" or "after" the work is done
	Async   bool    `json:"async"`
}
type operation struct {
	due  time.Time
	fail *fault
	done func()
	over bool
}
type lab struct {
	sync.Mutex
	url, region   string
	sub           string
	store         map[string]obj // key: lower-case ID
	groups        map[string]string
	ops           map[string]*operation
	busy          map[string]*operation
	faults        []*fault
	calls         []obj
	badAnswers    []string
	tokens        map[string]time.Time
	secret        string
	assertions    []string
	seq, ip, priv int
	delay         time.Duration
	shout         bool // VM and NIC answers carry the group name in capitals, as ARM's compute side does
	reads, writes int  // remaining
	tokenLife     time.Duration
}

func get(o any, path ...string) any {
	for _, p := range path {
		m, ok := o.(obj)
		if !ok {
			return nil
		}
		o = m[p]
	}
	return o
}
func str(o any, path ...string) string { s, _ := get(o, path...).(string); return s }
func list(o any, path ...string) []obj {
	l, _ := get(o, path...).([]any)
	out := []obj{}
	for _, x := range l {
		if m, ok := x.(obj); ok {
			out = append(out, m)
		}
	}
	return out
}
func props(o obj) obj {
	p, ok := o["properties"].(obj)
	if !ok {
		p = obj{}
		o["properties"] = p
	}
	return p
}
func clone(o obj) obj     { b, _ := json.Marshal(o); var c obj; _ = json.Unmarshal(b, &c); return c }
func low(s string) string { return strings.ToLower(s) }
func num(o any, path ...string) int {
	switch n := get(o, path...).(type) {
	case float64:
		return int(n)
	case int:
		return n
	case string:
		i, _ := strconv.Atoi(n)
		return i
	}
	return 0
}

func (l *lab) etag() string {
	l.seq++
	return fmt.Sprintf(`W/"%08x-0000-4000-8000-000000000000"`, l.seq)
}

func (l *lab) must(id, code, what string) (obj, error) {
	o, ok := l.find(id)
	if !ok {
		return nil, no(400, code, "Resource %s referenced by resource %s was not found.", id, what)
	}
	return o, nil
}

// find looks up a resource or a part of one (a frontend, a pool, a probe, an IP configuration).
func (l *lab) find(id string) (obj, bool) {
	key := low(id)
	if o, ok := l.store[key]; ok {
		return o, true
	}
	cut := strings.LastIndex(key, "/")
	if cut < 0 {
		return nil, false
	}
	cut2 := strings.LastIndex(key[:cut], "/")
	if cut2 < 0 {
		return nil, false
	}
	parent, ok := l.store[key[:cut2]]
	if !ok {
		return nil, false
	}
	for k, v := range props(parent) {
		if low(k) == key[cut2+1:cut] {
			if arr, isArr := v.([]any); isArr {
				for _, x := range arr {
					if m, isObj := x.(obj); isObj && low(str(m, "name")) == key[cut+1:] {
						return m, true
					}
				}
			}
		}
	}
	return nil, false
}

func (l *lab) private() string {
	l.priv++
	return fmt.Sprintf("10.224.%d.%d", l.priv/250, 4+l.priv%250)
}
func (l *lab) public() string { l.ip++; return fmt.Sprintf("203.0.113.%d", l.ip%254+1) }

func merge(into, from obj) {
	for k, v := range from {
		if m, ok := v.(obj); ok {
			if have, ok := into[k].(obj); ok {
				merge(have, m)
				continue
			}
		}
		if v == nil {
			delete(into, k)
		} else {
			into[k] = v
		}
	}
}
