package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Files are mounted PEM files that somebody else renews.
type Files struct {
	CA   string // published to the API server; not read if empty
	Cert string
	Key  string
}

// Present reports whether a certificate or a key is mounted. One without the other
// is present, so that Load says what is missing.
func (f Files) Present() bool {
	for _, name := range []string{f.Cert, f.Key} {
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// Load reads the files. On an error the caller goes on with what it has: files
// are replaced one after the other.
func (f Files) Load(context.Context, time.Time, []byte) (*Serving, error) {
	var contents [3][]byte
	var problems []error
	for i, name := range []string{f.CA, f.Cert, f.Key} {
		if name == "" {
			continue
		}
		content, err := os.ReadFile(name)
		if err == nil && len(content) == 0 {
			err = fmt.Errorf("%s is empty", name)
		}
		contents[i], problems = content, append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("read the certificate files: %w", err)
	}
	if f.CA != "" && len(parse(contents[0])) == 0 {
		return nil, fmt.Errorf("read the certificate files: %s holds no certificate in PEM form", f.CA)
	}
	serving, err := newServing(contents[1], contents[2], contents[0])
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s: %w", f.Cert, f.Key, err)
	}
	return serving, nil
}
