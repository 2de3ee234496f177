package startup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/policy"
	"loadline.dev/loadline/pkg/core/resources"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

const mi = resources.Amount(1) << 20

// boosted has 400m of which 200m are the boost.
func boosted(name string) Container {
	return Container{Boosted: true, Observed: true,
		Current:  policy.Container{Name: name, Requests: resources.Of(400, 100*mi), Limits: resources.Of(800, 200*mi)},
		Original: policy.Container{Requests: resources.Of(200, 100*mi), Limits: resources.Of(400, 200*mi)}}
}

func pod(containers ...Container) Pod {
	return Pod{Ready: true, ReadySince: noon.Add(-time.Minute), Containers: containers}
}

func lasting(name string, d time.Duration) policy.Entry {
	rule := policy.Default()
	rule.Boost = policy.Boost{Type: policy.BoostFactor, Factor: 2, Duration: d}
	return policy.Entry{Container: name, Rule: rule, OwnBoost: true}
}

func target(r resources.List) map[string]resources.Bounds {
	return map[string]resources.Bounds{"a": {Target: r}}
}

func TestABoostEndsAfterItsTime(t *testing.T) {
	a := Advice{Sizes: true, Recommendation: target(resources.Of(220, 120*mi)),
		Rules: policy.Rules{Entries: []policy.Entry{lasting("a", time.Minute), lasting("b", time.Hour)}}}
	v := Judge(pod(boosted("a"), boosted("b")), a, noon)
	require.Empty(t, v.Over, "it lasts for a minute, the last moment included")
	require.Equal(t, time.Millisecond, v.Wait)

	v = Judge(pod(boosted("a"), boosted("b")), a, noon.Add(1))
	require.Equal(t, []string{"a"}, v.Over)
	require.Len(t, v.Give, 1, "the other is still boosted")
	require.Equal(t, resources.Of(220, 120*mi), v.Give[0].Requests)
	require.Equal(t, resources.Of(440, 240*mi), v.Give[0].Limits, "limits keep the proportion that they were written with")
	require.Equal(t, 59*time.Minute-1, v.Wait)

	p := pod(boosted("a"))
	p.Ready = false
	require.Equal(t, Verdict{}, Judge(p, a, noon.Add(time.Hour)))
	require.Equal(t, []string{"a"}, Judge(pod(boosted("a")), Advice{}, noon).Over, "without duration it ends when the pod is ready")
}

// D9: CPU that nobody recommends goes back to what was written.
func TestD9MemoryAloneDoesNotKeepTheBoost(t *testing.T) {
	a := Advice{Sizes: true, Recommendation: target(resources.List{}.With(resources.Memory, 120*mi))}
	v := Judge(pod(boosted("a")), a, noon)
	require.Equal(t, resources.Of(200, 120*mi), v.Give[0].Requests)
	require.Equal(t, resources.Of(400, 240*mi), v.Give[0].Limits)
}

func TestWithoutAdviceWhatWasWrittenComesBack(t *testing.T) {
	for name, a := range map[string]Advice{
		"no VPA":            {},
		"no recommendation": {Sizes: true},
		"update mode Off":   {Recommendation: target(resources.Of(220, 120*mi))},
		"container mode Off": {Sizes: true, Recommendation: target(resources.Of(220, 120*mi)),
			Rules: policy.Rules{Entries: []policy.Entry{{Container: "a", Rule: policy.Rule{Off: true}}}}},
	} {
		v := Judge(pod(boosted("a"), Container{Observed: true, Current: policy.Container{Name: "b", Requests: resources.Of(5, 5)}}), a, noon)
		require.Len(t, v.Give, 1, name)
		require.Equal(t, resources.Of(200, 100*mi), v.Give[0].Requests, name)
		require.Equal(t, resources.Of(400, 200*mi), v.Give[0].Limits, name)
	}
}

func TestTheAnnotationOfAPodCannotMakeItLarger(t *testing.T) {
	c := boosted("a")
	c.Original.Requests, c.Original.Limits = resources.Of(9000, 900*mi), resources.Of(9000, 900*mi)
	v := Judge(pod(c), Advice{}, noon)
	require.Equal(t, c.Current.Requests, v.Give[0].Requests)
	require.Equal(t, c.Current.Limits, v.Give[0].Limits)
}

func TestAContainerThatHadNoCPURequestKeepsTheLeast(t *testing.T) {
	c := boosted("a")
	c.Original = policy.Container{}
	v := Judge(pod(c), Advice{}, noon)
	require.Equal(t, resources.List{}.With(resources.CPU, 1), v.Give[0].Requests)
}

func TestOtherContainersGetWhatIsRecommended(t *testing.T) {
	a := Advice{Sizes: true, Recommendation: map[string]resources.Bounds{"b": {Target: resources.Of(7, 7)}, "late": {Target: resources.Of(7, 7)}}}
	other := Container{Observed: true, Current: policy.Container{Name: "b", Requests: resources.Of(5, 5)}}
	late := Container{Current: policy.Container{Name: "late", Requests: resources.Of(5, 5)}}
	v := Judge(pod(boosted("a"), other, late), a, noon)
	require.Len(t, v.Give, 2)
	require.Equal(t, "b", v.Give[1].Name)
	require.Empty(t, Judge(pod(other), a, noon).Give, "nothing was boosted")
}
