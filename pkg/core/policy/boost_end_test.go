package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/pkg/core/resources"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// boosted runs with 400m, 200m of which are the boost.
func boosted(name string) BoostedContainer {
	return BoostedContainer{Boosted: true, Observed: true,
		Current:  Container{Name: name, Requests: resources.Of(400, 100*mi), Limits: resources.Of(800, 200*mi)},
		Original: Container{Requests: resources.Of(200, 100*mi), Limits: resources.Of(400, 200*mi)}}
}

func pod(containers ...BoostedContainer) BoostedPod {
	return BoostedPod{Ready: true, ReadySince: noon.Add(-time.Minute), Containers: containers}
}

func lasting(name string, d time.Duration) Entry {
	rule := Default()
	rule.Boost = Boost{Type: BoostFactor, Factor: 2, Duration: d}
	return Entry{Container: name, Rule: rule, OwnBoost: true}
}

func targetOnly(r resources.List) map[string]resources.Bounds {
	return map[string]resources.Bounds{"a": {Target: r}}
}

func TestABoostEndsAfterItsTime(t *testing.T) {
	a := BoostAdvice{Sizes: true, Recommendation: targetOnly(resources.Of(220, 120*mi)),
		Rules: Rules{Entries: []Entry{lasting("a", time.Minute), lasting("b", time.Hour)}}}
	v := JudgeBoost(pod(boosted("a"), boosted("b")), a, noon)
	require.Empty(t, v.Over, "it lasts for a minute, the last moment included")
	require.Equal(t, time.Millisecond, v.Wait)

	v = JudgeBoost(pod(boosted("a"), boosted("b")), a, noon.Add(1))
	require.Equal(t, []string{"a"}, v.Over)
	require.Len(t, v.Give, 1, "the other is still boosted")
	require.Equal(t, resources.Of(220, 120*mi), v.Give[0].Requests)
	require.Equal(t, resources.Of(440, 240*mi), v.Give[0].Limits, "limits keep the proportion that they were written with")
	require.Equal(t, 59*time.Minute-1, v.Wait)

	p := pod(boosted("a"))
	p.Ready = false
	require.Equal(t, BoostVerdict{}, JudgeBoost(p, a, noon.Add(time.Hour)))
	require.Equal(t, []string{"a"}, JudgeBoost(pod(boosted("a")), BoostAdvice{}, noon).Over, "without duration it ends when the pod is ready")
}

func TestMemoryAloneDoesNotKeepTheBoost(t *testing.T) {
	a := BoostAdvice{Sizes: true, Recommendation: targetOnly(resources.List{}.With(resources.Memory, 120*mi))}
	v := JudgeBoost(pod(boosted("a")), a, noon)
	require.Equal(t, resources.Of(200, 120*mi), v.Give[0].Requests)
	require.Equal(t, resources.Of(400, 240*mi), v.Give[0].Limits)
}

func TestWithoutAdviceWhatWasWrittenComesBack(t *testing.T) {
	for name, a := range map[string]BoostAdvice{
		"no VPA":            {},
		"no recommendation": {Sizes: true},
		"update mode Off":   {Recommendation: targetOnly(resources.Of(220, 120*mi))},
		"container mode Off": {Sizes: true, Recommendation: targetOnly(resources.Of(220, 120*mi)),
			Rules: Rules{Entries: []Entry{{Container: "a", Rule: Rule{Off: true}}}}},
	} {
		v := JudgeBoost(pod(boosted("a"), BoostedContainer{Observed: true, Current: Container{Name: "b", Requests: resources.Of(5, 5)}}), a, noon)
		require.Len(t, v.Give, 1, name)
		require.Equal(t, resources.Of(200, 100*mi), v.Give[0].Requests, name)
		require.Equal(t, resources.Of(400, 200*mi), v.Give[0].Limits, name)
	}
}

func TestTheAnnotationOfAPodCannotMakeItLarger(t *testing.T) {
	c := boosted("a")
	c.Original.Requests, c.Original.Limits = resources.Of(9000, 900*mi), resources.Of(9000, 900*mi)
	v := JudgeBoost(pod(c), BoostAdvice{}, noon)
	require.Equal(t, c.Current.Requests, v.Give[0].Requests)
	require.Equal(t, c.Current.Limits, v.Give[0].Limits)
}

func TestAContainerThatHadNoCPURequestKeepsTheLeast(t *testing.T) {
	c := boosted("a")
	c.Original = Container{}
	v := JudgeBoost(pod(c), BoostAdvice{}, noon)
	require.Equal(t, resources.List{}.With(resources.CPU, 1), v.Give[0].Requests)
}

func TestOtherContainersGetWhatIsRecommended(t *testing.T) {
	a := BoostAdvice{Sizes: true, Recommendation: map[string]resources.Bounds{"b": {Target: resources.Of(7, 7)}, "late": {Target: resources.Of(7, 7)}}}
	other := BoostedContainer{Observed: true, Current: Container{Name: "b", Requests: resources.Of(5, 5)}}
	late := BoostedContainer{Current: Container{Name: "late", Requests: resources.Of(5, 5)}}
	v := JudgeBoost(pod(boosted("a"), other, late), a, noon)
	require.Len(t, v.Give, 2)
	require.Equal(t, "b", v.Give[1].Name)
	require.Empty(t, JudgeBoost(pod(other), a, noon).Give, "nothing was boosted")
}
