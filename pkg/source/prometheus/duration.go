package prometheus

import (
	"time"

	"github.com/prometheus/common/model"
)

// FormatDuration returns d in the format of Prometheus, which has no fractions: 7.5 s is 7s500ms.
// It rounds to milliseconds. Prometheus accepts no duration of 0, so the result is at least 1ms.
func FormatDuration(d time.Duration) string {
	return model.Duration(max(d.Round(time.Millisecond), time.Millisecond)).String()
}

// ParseDuration reads a duration in the format of Prometheus, such as 8d or 1h30m, or of Go, such
// as 7.5s.
func ParseDuration(text string) (time.Duration, error) {
	d, err := model.ParseDuration(text)
	if err == nil {
		return time.Duration(d), nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	return 0, err
}
