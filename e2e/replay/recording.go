package replay

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Minute is how often the backtester, and a recommender by default, looks.
const Minute = time.Minute

// Sample is what was used from an instant on until the next sample.
type Sample struct {
	After     time.Duration // since the first sample
	Nanocores int64         // -1 = not recorded
	Bytes     int64         // -1 = not recorded
}

// Recording is what one container used.
type Recording struct {
	Name    string // of the workload; the container is "app"
	Samples []Sample
	Start   time.Time // of the first sample: whole seconds

	CPURequest, MemoryRequest string // quantities; recorded or chosen, and those that a replay begins with

	step time.Duration // see Step; 0 = not looked for yet
}

// Container is the name of every recorded container.
const Container = "app"

// Step is the usual time between two samples.
func (r *Recording) Step() time.Duration {
	if r.step > 0 {
		return r.step
	}
	steps := make([]time.Duration, len(r.Samples)-1)
	for i := range steps {
		steps[i] = r.Samples[i+1].After - r.Samples[i].After
	}
	slices.Sort(steps)
	r.step = steps[len(steps)/2]
	return r.step
}

// Length is the time from the first sample to the end of the last one, which stands
// for one step.
func (r *Recording) Length() time.Duration {
	return r.Samples[len(r.Samples)-1].After + r.Step()
}

// EndAt places the recording so that it ends at an instant, or up to a minute before
// it, and begins some whole minutes before it: who looks each minute sees the first
// sample when it is made, as the backtester does.
func (r *Recording) EndAt(end time.Time) { r.Start = end.Add(-minutes(r.Length())) }

// minutes rounds up.
func minutes(d time.Duration) time.Duration { return (d + Minute - 1).Truncate(Minute) }

// At returns the sample that somebody sees who looks at an instant, or false if none
// stands for it: a sample does until the next one, but for three steps at most.
func (r *Recording) At(at time.Time) (Sample, bool) {
	after := at.Sub(r.Start)
	i, exact := slices.BinarySearchFunc(r.Samples, after, func(s Sample, d time.Duration) int { return int(s.After - d) })
	if !exact {
		i--
	}
	if i < 0 {
		return Sample{}, false
	}
	step := r.Step()
	hold := step
	if i+1 < len(r.Samples) {
		hold = min(r.Samples[i+1].After-r.Samples[i].After, 3*step)
	}
	return r.Samples[i], after < r.Samples[i].After+hold
}

// Cut leaves of a recording its first samples, if it has more.
func (r *Recording) Cut(samples int) *Recording {
	r.Samples = r.Samples[:min(samples, len(r.Samples))]
	return r
}

// Seconds reads recordings of a process with a sample a second, one after the other,
// and takes each sample for that of a minute: what took 24 minutes lasts a day.
func Seconds(paths ...string) (*Recording, error) {
	r := &Recording{}
	for _, path := range paths {
		err := eachLine(path, func(field func(string) string) error {
			s := Sample{After: time.Duration(len(r.Samples)) * Minute}
			var err error
			s.Nanocores, s.Bytes, err = used(field)
			r.Samples = append(r.Samples, s)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Containers reads up to a number of containers from a file of the shared recordings,
// those first whose name accept takes. Their names are those of the file and a number.
func Containers(path, name string, most int) ([]*Recording, error) {
	var all []*Recording
	last, first := "", 0.0
	errEnough := errors.New("enough")
	err := eachLine(path, func(field func(string) string) error {
		if key := field("workload") + "/" + field("container"); key != last {
			if len(all) == most {
				return errEnough
			}
			last = key
			all = append(all, &Recording{Name: fmt.Sprintf("%s-%d", name, len(all)), CPURequest: "500m", MemoryRequest: "512Mi"})
			first = 0
		}
		r := all[len(all)-1]
		at, err := strconv.ParseFloat(field("timestamp"), 64)
		if err != nil {
			return err
		}
		if len(r.Samples) == 0 {
			first = at
		}
		s := Sample{After: time.Duration((at - first) * float64(time.Second)).Round(time.Second)}
		s.Nanocores, s.Bytes, err = used(field)
		r.Samples = append(r.Samples, s)
		return err
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return all, err
}

// eachLine calls take for each line of a compressed file, with what returns a field
// of it by the name of its column.
func eachLine(path string, take func(field func(string) string) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	lines := csv.NewReader(unpacked)
	header, err := lines.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = take(func(column string) string {
				if at := slices.Index(header, column); at >= 0 {
					return fields[at]
				}
				return ""
			})
		}
		if err != nil {
			line, _ := lines.FieldPos(0)
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
	}
}

// used reads the use of a line: exactly, because a float of 0.001 cores is not one
// millicore.
func used(field func(string) string) (nanocores, bytes int64, err error) {
	nanocores, bytes = -1, -1
	if text := field("cpu_cores"); text != "" {
		whole, fraction, _ := strings.Cut(text, ".")
		if len(fraction) > 9 {
			fraction = fraction[:9]
		}
		if nanocores, err = strconv.ParseInt(whole+fraction+strings.Repeat("0", 9-len(fraction)), 10, 64); err != nil {
			return -1, -1, fmt.Errorf("cpu_cores is %q: want a decimal number", text)
		}
	}
	if text := field("memory_bytes"); text != "" {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return -1, -1, err
		}
		bytes = int64(value)
	}
	return nanocores, bytes, nil
}
