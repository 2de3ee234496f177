package recipe

import (
	"fmt"
	"math"
	"strings"
	"time"

	"loadline.dev/loadline/pkg/core/resources"
)

// Quantile begins a chain: what the container stayed within for the share q (0
// to 1) of its weighted past.
func Quantile(kind resources.Kind, q float64) Step {
	name := fmt.Sprintf("%s quantile %v", kind, q)
	if kind == resources.CPU {
		return whole(name, func(s Subject, _ resources.Amount) resources.Amount {
			return resources.FromFloat(s.Profile.CPU.Quantile(q) * 1000) // cores
		})
	}
	return whole(name, func(s Subject, _ resources.Amount) resources.Amount {
		return resources.FromFloat(s.Profile.Memory.Quantile(q))
	})
}

// Margin adds the given fraction.
func Margin(fraction float64) Step {
	return whole(fmt.Sprintf("margin %v", fraction), func(_ Subject, in resources.Amount) resources.Amount {
		return min(in.Add(in.Scale(fraction)), resources.Max)
	})
}

// Confidence multiplies by (1 + multiplier/c)^exponent, where c is how many
// intervals the past covers: an exponent above 0 widens, one below 0 narrows,
// and both do less the more is known. Without any confidence a positive amount
// becomes the largest or the least there is, while 0 stays 0.
func Confidence(multiplier, exponent float64, interval time.Duration) Step {
	name := fmt.Sprintf("confidence (1 + %v/c)^%v, c in %s", multiplier, exponent, short(interval))
	return whole(name, func(s Subject, in resources.Amount) resources.Amount {
		return in.Scale(math.Pow(1+multiplier/s.Profile.Confidence(interval), exponent))
	})
}

// Floor raises to the subject's minimum of the kind, if it has one.
func Floor(kind resources.Kind) Step {
	return whole("floor", func(s Subject, in resources.Amount) resources.Amount {
		return max(in, s.Minimum.Value(kind))
	})
}

// short writes a duration without the zero minutes and seconds at its end.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
