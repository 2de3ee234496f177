// Package resources is the arithmetic at the bottom of Loadline: how much CPU or
// memory, without units of the Kubernetes API and without fractions.
//
// Its types are Kind (CPU or Memory), Amount (an integer number of millicores
// or bytes), List (an optional amount for each kind) and Bounds (a
// recommendation: lower, target and upper). Arithmetic saturates, so that no
// absurd input can turn a large amount into a negative one.
//
// It does not parse or print quantities; package convert does.
package resources

// List holds an optional amount for each kind. The zero value holds
// none. It is a value: copy it freely, compare it with ==.
type List struct {
	amounts [Kinds]Amount
	present [Kinds]bool
}

// Of returns Resources with both kinds present.
func Of(cpu, memory Amount) List {
	return List{}.With(CPU, cpu).With(Memory, memory)
}

// Get returns the amount of kind k and whether there is one.
func (r List) Get(k Kind) (Amount, bool) { return r.amounts[k], r.present[k] }

// Value returns the amount of kind k, 0 if there is none.
func (r List) Value(k Kind) Amount { return r.amounts[k] }

// Has reports whether there is an amount of kind k.
func (r List) Has(k Kind) bool { return r.present[k] }

// With returns a copy of r in which kind k has the amount a.
func (r List) With(k Kind, a Amount) List {
	r.amounts[k], r.present[k] = a, true
	return r
}

// Without returns a copy of r in which kind k has no amount.
func (r List) Without(k Kind) List {
	r.amounts[k], r.present[k] = 0, false
	return r
}

// Empty reports whether no kind has an amount.
func (r List) Empty() bool { return r == List{} }

// Override returns r with the amounts that by has in place of its own.
func (r List) Override(by List) List {
	for k := range Kind(Kinds) {
		if by.Has(k) {
			r = r.With(k, by.Value(k))
		}
	}
	return r
}

// Plus returns the sum of two lists.
func (r List) Plus(more List) List {
	for k := range Kind(Kinds) {
		if more.Has(k) {
			r = r.With(k, r.Value(k).Add(more.Value(k)))
		}
	}
	return r
}

// Larger returns the larger amounts of two lists.
func (r List) Larger(other List) List {
	for k := range Kind(Kinds) {
		if other.Has(k) && (other.Value(k) > r.Value(k) || !r.Has(k)) {
			r = r.With(k, other.Value(k))
		}
	}
	return r
}

// Fits reports whether r is at most what is free. A kind that free lacks is not limited.
func (r List) Fits(free List) bool {
	for k := range Kind(Kinds) {
		if free.Has(k) && r.Value(k) > free.Value(k) {
			return false
		}
	}
	return true
}

// Bounds is a recommendation for one container. A kind that is not
// recommended is absent from all of them.
type Bounds struct {
	Lower  List // below this a pod is sure to be too small
	Target List // what a new pod should request
	Upper  List // above this a pod is sure to be too large
}

// AtLeast returns bounds whose target is at least floor. Kinds that floor has not stay as they are.
func (b Bounds) AtLeast(floor List) Bounds {
	for k := range Kind(Kinds) {
		least, there := floor.Get(k)
		if !there {
			continue
		}
		b.Target = b.Target.With(k, max(least, b.Target.Value(k)))
		if upper, bounded := b.Upper.Get(k); bounded {
			b.Upper = b.Upper.With(k, max(upper, least))
		}
	}
	return b
}
