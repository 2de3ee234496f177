package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"time"
)

// TrustAnnotation on the configuration remembers until when each CA in it is to
// be trusted. Replicas whose certificates come from files see new files at
// different times; what one of them adds the others must not take away.
const TrustAnnotation = "loadline.dev/trusted-until"

// grace is how long a CA stays trusted after the last replica wanted it. A CA
// that is wanted is noted again when half of that has passed.
const grace = 2 * time.Hour

// trust is what the API server trusts: the bundle, and by fingerprint until when.
type trust struct {
	bundle []byte
	until  map[string]time.Time
}

// with returns the trust of a replica that wants the given CAs (PEM) at now:
// those first, exactly as they are given, then the others that are not too old.
func (t trust) with(cas []byte, now time.Time) trust {
	next := trust{bundle: bytes.Clone(cas), until: map[string]time.Time{}}
	for _, ca := range parse(cas) {
		id := fingerprint(ca)
		next.until[id] = t.until[id]
		if next.until[id].Before(now.Add(grace / 2)) {
			next.until[id] = now.Add(grace)
		}
	}
	for _, ca := range parse(t.bundle) {
		id := fingerprint(ca)
		if _, there := next.until[id]; there || now.After(ca.NotAfter) {
			continue
		}
		until, noted := t.until[id]
		if !noted { // of another program, or of the time before this annotation
			until = now.Add(grace)
		}
		if now.After(until) {
			continue
		}
		next.until[id] = until
		if n := len(next.bundle); n > 0 && next.bundle[n-1] != '\n' {
			next.bundle = append(next.bundle, '\n')
		}
		next.bundle = append(next.bundle, encode(certificateBlock, ca.Raw)...)
	}
	return next
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:8])
}

// note prints the value of TrustAnnotation.
func (t trust) note() (string, error) {
	whole := make(map[string]time.Time, len(t.until))
	for id, until := range t.until {
		whole[id] = until.UTC().Truncate(time.Second)
	}
	raw, err := json.Marshal(whole)
	return string(raw), err
}

// noted reads the value of TrustAnnotation; what cannot be read says nothing.
func noted(value string) map[string]time.Time {
	var until map[string]time.Time
	if json.Unmarshal([]byte(value), &until) != nil {
		return nil
	}
	return until
}
