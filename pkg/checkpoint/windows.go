package checkpoint

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
	"loadline.dev/loadline/pkg/kube/target"
)

// OpenWindows is the annotation of a checkpoint with its open memory windows, target and recipe
// sketch. The status lacks the peaks of these windows, so a restart would lose them.
const OpenWindows = "loadline.dev/open-windows"

// ErrWindows means that the annotation is unusable. The status is still usable.
var ErrWindows = errors.New("the annotation " + OpenWindows + " cannot be used")

// Limits for an annotation. The API server allows 256 KiB for all annotations of an object.
const (
	maxWindows         = 1000
	maxWindowBytes     = 128 << 10
	maxBytes           = 240 << 10 // in total, the rest is for other annotations
	maxReportedWindows = 10        // invalid windows in an error
)

// storedAnnotation is the content of the annotation. Its windows count only together with the
// status they were written with: another recommender rewrites the status and keeps the annotation.
type storedAnnotation struct {
	Written string            `json:"written"` // status.lastUpdateTime
	Target  targetRef         `json:"target,omitzero"`
	Windows map[string]window `json:"windows"` // by pod
	// Sketch counts with any status, because it holds its own time.
	Sketch []byte `json:"trail,omitempty"`
}

// targetRef names the workload of a history in the namespace of the checkpoint. It omits the API
// version, and the group of the well-known kinds, because both have several spellings.
type targetRef struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

type window struct {
	End   time.Time         `json:"end,omitzero"`
	Usage *resources.Amount `json:"usage,omitempty"` // bytes
	OOM   *resources.Amount `json:"oom,omitempty"`   // bytes
	Kill  time.Time         `json:"kill,omitzero"`
	Kills []uint64          `json:"kills,omitempty"` // hashes of IDs
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// encodeWindows keeps the windows with the highest peaks if there are too many.
func encodeWindows(windows map[string]usage.Window) ([]byte, error) {
	pods := slices.SortedFunc(maps.Keys(windows), func(a, b string) int {
		return cmp.Or(cmp.Compare(windows[b].Peak(), windows[a].Peak()), cmp.Compare(a, b))
	})
	const most, overhead = len(`"":{"end":"","usage":,"oom":,"kill":"","kills":[]},`) + 2*len(time.RFC3339Nano) + 2*len("9223372036854775807"), 64
	list, size := map[string]window{}, overhead
	for _, pod := range pods[:min(len(pods), maxWindows)] {
		w := windows[pod]
		if size += most + len(pod) + len(w.Kills)*len("18446744073709551615,"); size > maxWindowBytes {
			break
		}
		list[pod] = window{End: w.End, Usage: optionalAmount(w.Usage), OOM: optionalAmount(w.OOM), Kill: w.Kill, Kills: w.Kills}
	}
	return json.Marshal(list)
}

// ErrSketch means that a sketch is too large for the annotation. Everything else is saved.
var ErrSketch = errors.New("drop sketch: the sketch of the recipe is too large for the annotation " + OpenWindows + " and starts empty after a restart, choose larger buckets or fewer days in the annotation loadline.dev/recipe")

func fits(target, windows, sketch []byte) bool {
	return len(target)+len(windows)+base64.StdEncoding.EncodedLen(len(sketch)) < maxBytes
}

func encodeAnnotation(target, windows, sketch []byte, written time.Time) string {
	text := `{"written":"` + formatTime(written) + `"`
	if len(target) > 0 {
		text += `,"target":` + string(target)
	}
	text += `,"windows":` + string(windows)
	if len(sketch) > 0 {
		text += `,"trail":"` + base64.StdEncoding.EncodeToString(sketch) + `"`
	}
	return text + `}`
}

func encodeTarget(k target.Key) ([]byte, error) {
	if k.Name == "" {
		return nil, nil
	}
	return json.Marshal(targetRef{Group: k.Group, Kind: k.Kind, Name: k.Name})
}

func (r targetRef) key(namespace string) target.Key {
	if r.Name == "" {
		return target.Key{}
	}
	return target.Key{Namespace: namespace, Group: r.Group, Kind: r.Kind, Name: r.Name}
}

func optionalAmount(a resources.Amount) *resources.Amount {
	if a < 0 {
		return nil
	}
	return &a
}

// decode reads the annotation. Windows stay nil if the status was written at another time.
func (past *ContainerHistory) decode(text, namespace string, written time.Time) error {
	var o storedAnnotation
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("%w: %w", ErrWindows, err)
	}
	past.Target, past.Sketch = o.Target.key(namespace), o.Sketch
	if past.Rewritten = o.Written != formatTime(written); past.Rewritten {
		return nil
	}
	windows := make(map[string]usage.Window, len(o.Windows))
	var problems []error
	for _, pod := range slices.Sorted(maps.Keys(o.Windows)) {
		w, err := o.Windows[pod].read()
		if err != nil {
			problems = append(problems, fmt.Errorf("%w: window of pod %q: %w", ErrWindows, pod, err))
		}
		windows[pod] = w
	}
	if problems != nil {
		return errors.Join(problems[:min(len(problems), maxReportedWindows)]...)
	}
	past.Windows = windows
	return nil
}

func (w window) read() (usage.Window, error) {
	read := usage.Window{End: w.End, Usage: -1, OOM: -1, Kill: w.Kill, Kills: w.Kills[:min(len(w.Kills), usage.RememberedKills)]}
	for _, a := range []struct {
		name string
		from *resources.Amount
		to   *resources.Amount
	}{{"usage", w.Usage, &read.Usage}, {"oom", w.OOM, &read.OOM}} {
		if a.from == nil {
			continue
		}
		if *a.from < 0 {
			return read, fmt.Errorf("%s is %d, must not be negative", a.name, *a.from)
		}
		*a.to = *a.from
	}
	if read.Peak() >= 0 && w.End.Unix() < 0 {
		return read, fmt.Errorf("end is %s, must be after 1970 where there is a peak", formatTime(w.End))
	}
	return read, nil
}
