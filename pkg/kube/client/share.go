package client

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// digest identifies a value. It is cryptographic, because users could construct collisions.
type digest [sha256.Size / 2]byte

// pool keeps one copy of each shared value while it is referenced. The owner holds the lock.
type pool[T any] struct {
	held map[digest]*part[T]
}

// part is a value of a pool. It must not be changed.
type part[T any] struct {
	value  T
	digest digest
	users  int32
}

func (p *pool[T]) find(d digest) *part[T] {
	found := p.held[d]
	if found != nil {
		found.users++
	}
	return found
}

// add adds a value with one reference. The pool must not contain it.
func (p *pool[T]) add(d digest, value T) *part[T] {
	if p.held == nil {
		p.held = map[digest]*part[T]{}
	}
	added := &part[T]{value, d, 1}
	p.held[d] = added
	return added
}

func (p *pool[T]) share(d digest, value T) *part[T] {
	if found := p.find(d); found != nil {
		return found
	}
	return p.add(d, value)
}

func (p *pool[T]) release(x *part[T]) (last bool) {
	if x.users--; x.users > 0 {
		return false
	}
	delete(p.held, x.digest)
	return true
}

// digestInput encodes strings with a length prefix, so that encodings are unique.
type digestInput []byte

func (t *digestInput) digest() digest {
	sum := sha256.Sum256(*t)
	return digest(sum[:len(digest{})])
}

func (t *digestInput) number(n int64) { *t = binary.AppendVarint(*t, n) }

func (t *digestInput) word(s string) {
	t.number(int64(len(s)))
	*t = append(*t, s...)
}

func (t *digestInput) boolean(b bool) {
	n := int64(0)
	if b {
		n = 1
	}
	t.number(n)
}

func (t *digestInput) stringMap(m map[string]string) {
	if m == nil {
		t.number(-1)
		return
	}
	t.number(int64(len(m)))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		t.word(key)
		t.word(m[key])
	}
}

// list also encodes number formats, so lists with equal encodings print alike.
func (t *digestInput) list(list corev1.ResourceList) {
	if list == nil {
		t.number(-1)
		return
	}
	t.number(int64(len(list)))
	known := 0
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} { // usually the only names
		if q, found := list[name]; found {
			t.word(string(name))
			t.quantity(q)
			known++
		}
	}
	if known == len(list) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		t.word(string(name))
		t.quantity(list[name])
	}
}

func (t *digestInput) quantity(q resource.Quantity) {
	t.word(string(q.Format))
	if n, whole := q.AsInt64(); whole { // most bytes and many cores are whole
		t.boolean(true)
		t.number(n)
		return
	}
	t.boolean(false)
	t.word(q.String())
}

func (t *digestInput) resources(r *corev1.ResourceRequirements) {
	t.list(r.Requests)
	t.list(r.Limits)
	t.number(int64(len(r.Claims)))
	for i := range r.Claims {
		t.word(r.Claims[i].Name)
		t.word(r.Claims[i].Request)
	}
}

func (t *digestInput) policy(policy []corev1.ContainerResizePolicy) {
	t.number(int64(len(policy)))
	for _, p := range policy {
		t.word(string(p.ResourceName))
		t.word(string(p.RestartPolicy))
	}
}

func (t *digestInput) owners(owners []metav1.OwnerReference) {
	t.number(int64(len(owners)))
	for i := range owners {
		o := &owners[i]
		t.word(o.APIVersion)
		t.word(o.Kind)
		t.word(o.Name)
		t.boolean(o.Controller != nil && *o.Controller)
	}
}
