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

// digest names a value by its content: equal values have equal digests, and no
// others, since labels and names are what anybody writes.
type digest [sha256.Size / 2]byte

// pool keeps one copy of each value that cached objects have in common, as long as
// one of them uses it. Its owner has the lock.
type pool[T any] struct {
	held map[digest]*part[T]
}

// part is a value of a pool. Nobody may change it.
type part[T any] struct {
	value  T
	digest digest
	users  int32
}

// find returns the part of a digest with one user more, nil if there is none.
func (p *pool[T]) find(d digest) *part[T] {
	found := p.held[d]
	if found != nil {
		found.users++
	}
	return found
}

// add puts a value that find has not found into the pool. It has one user.
func (p *pool[T]) add(d digest, value T) *part[T] {
	if p.held == nil {
		p.held = map[digest]*part[T]{}
	}
	added := &part[T]{value, d, 1}
	p.held[d] = added
	return added
}

// share returns the part of a value whose digest is d, with one user more.
func (p *pool[T]) share(d digest, value T) *part[T] {
	if found := p.find(d); found != nil {
		return found
	}
	return p.add(d, value)
}

// leave takes a user from a part, and reports whether that was the last one.
func (p *pool[T]) leave(x *part[T]) (last bool) {
	if x.users--; x.users > 0 {
		return false
	}
	delete(p.held, x.digest)
	return true
}

// text is what a digest is made of. Each word has its length before it, so that
// different values cannot give the same text.
type text []byte

func (t *text) digest() digest {
	sum := sha256.Sum256(*t)
	return digest(sum[:len(digest{})])
}

func (t *text) number(n int64) { *t = binary.AppendVarint(*t, n) }

func (t *text) word(s string) {
	t.number(int64(len(s)))
	*t = append(*t, s...)
}

func (t *text) yes(b bool) {
	n := int64(0)
	if b {
		n = 1
	}
	t.number(n)
}

// words writes a map; nil is another value than an empty one.
func (t *text) words(m map[string]string) {
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

// list writes resources with their number formats: two lists that give the same text are printed alike.
func (t *text) list(list corev1.ResourceList) {
	if list == nil {
		t.number(-1)
		return
	}
	t.number(int64(len(list)))
	known := 0
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} { // nearly always there is no other
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

func (t *text) quantity(q resource.Quantity) {
	t.word(string(q.Format))
	if n, whole := q.AsInt64(); whole { // of bytes nearly always, and of cores often
		t.yes(true)
		t.number(n)
		return
	}
	t.yes(false)
	t.word(q.String())
}

func (t *text) resources(r *corev1.ResourceRequirements) {
	t.list(r.Requests)
	t.list(r.Limits)
	t.number(int64(len(r.Claims)))
	for i := range r.Claims {
		t.word(r.Claims[i].Name)
		t.word(r.Claims[i].Request)
	}
}

func (t *text) policy(policy []corev1.ContainerResizePolicy) {
	t.number(int64(len(policy)))
	for _, p := range policy {
		t.word(string(p.ResourceName))
		t.word(string(p.RestartPolicy))
	}
}

func (t *text) owners(owners []metav1.OwnerReference) {
	t.number(int64(len(owners)))
	for i := range owners {
		o := &owners[i]
		t.word(o.APIVersion)
		t.word(o.Kind)
		t.word(o.Name)
		t.yes(o.Controller != nil && *o.Controller)
	}
}
