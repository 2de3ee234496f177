package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// Store keeps the certificate in a Secret that all replicas share.
type Store struct {
	Secrets   corev1client.SecretsGetter
	Namespace string
	Name      string
	Hosts     []string // DNS names and IP addresses of the webhook, at least one
	Schedule  Schedule
}

// Load creates a missing Secret and rotates the certificate when due. One replica writes, the
// others use the result. Secrets of another issuer, such as cert-manager, are only read.
func (s *Store) Load(ctx context.Context, now time.Time, trusted []byte) (*Serving, error) {
	raced := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	var serving *Serving
	err := retry.OnError(retry.DefaultRetry, raced, func() (err error) {
		serving, err = s.load(ctx, now, trusted)
		return err
	})
	switch {
	case raced(err):
		return nil, fmt.Errorf("keep the serving certificate in secret %s/%s: other replicas keep changing it: %w", s.Namespace, s.Name, err)
	case err != nil:
		return nil, fmt.Errorf("keep the serving certificate in secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return serving, nil
}

func (s *Store) load(ctx context.Context, now time.Time, trusted []byte) (*Serving, error) {
	secret, err := s.Secrets.Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, err
	}
	if missing {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}, Type: corev1.SecretTypeOpaque}
	}
	if isForeign(secret.Data) {
		return readForeign(secret.Data)
	}
	data, changed, err := rotate(secret.Data, s.Hosts, s.Schedule, now, trusted)
	if err != nil {
		return nil, err
	}
	if changed {
		secret = secret.DeepCopy()
		secret.Data = mergeData(secret.Data, data)
		if missing {
			_, err = s.Secrets.Secrets(s.Namespace).Create(ctx, secret, metav1.CreateOptions{})
		} else {
			_, err = s.Secrets.Secrets(s.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
		}
		if err != nil {
			return nil, err
		}
	}
	return newServing(data[certKey], data[keyKey], data[bundleKey])
}

// isForeign reports whether another issuer, such as cert-manager, manages the Secret: it has tls.crt,
// which Store never writes.
func isForeign(data map[string][]byte) bool {
	return len(data[certKey]) == 0 && len(data[corev1.TLSCertKey]) > 0
}

func readForeign(data map[string][]byte) (*Serving, error) {
	if len(parse(data[foreignCAKey])) == 0 {
		return nil, fmt.Errorf("it has the key %s but no certificate of the CA under %s: its issuer must add that", corev1.TLSCertKey, foreignCAKey)
	}
	serving, err := newServing(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], data[foreignCAKey])
	if err != nil {
		return nil, fmt.Errorf("keys %s and %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return serving, nil
}

const foreignCAKey = "ca.crt"

// mergeData returns ours with the entries of others. It drops an obsolete next certificate, and the
// CA key of the reference VPA's script.
func mergeData(old, ours map[string][]byte) map[string][]byte {
	all := maps.Clone(old)
	if all == nil {
		all = map[string][]byte{}
	}
	for _, key := range []string{"caKey.pem", nextCertKey, nextKeyKey} {
		delete(all, key)
	}
	maps.Copy(all, ours)
	return all
}

// Files are mounted PEM files that another program renews.
type Files struct {
	CA   string // published to the API server, not read if empty
	Cert string
	Key  string
}

// Present reports whether the certificate or the key is mounted. If only one is, Load fails.
func (f Files) Present() bool {
	return slices.ContainsFunc([]string{f.Cert, f.Key}, func(name string) bool {
		_, err := os.Stat(name)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// Load reads the files. Errors can be transient, because files are replaced one after the other.
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
