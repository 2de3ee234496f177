package convert

// few is how many items are searched faster one by one.
const few = 8

// names finds items by their name; of several with one the first counts. The items are
// searched once, not for each question.
type names[T any] struct {
	items []T
	name  func(*T) string
	found map[string]*T // of many items
}

func byName[T any](items []T, name func(*T) string) names[T] {
	n := names[T]{items: items, name: name}
	if len(items) <= few {
		return n
	}
	n.found = make(map[string]*T, len(items))
	for i := range items {
		if at := name(&items[i]); n.found[at] == nil {
			n.found[at] = &items[i]
		}
	}
	return n
}

// find returns nil if there is no such item.
func (n *names[T]) find(wanted string) *T {
	if n.found != nil {
		return n.found[wanted]
	}
	for i := range n.items {
		if n.name(&n.items[i]) == wanted {
			return &n.items[i]
		}
	}
	return nil
}
