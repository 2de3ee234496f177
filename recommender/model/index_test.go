package model

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

type countedSelector struct {
	labels.Selector
	evaluations, comparisons *int
}

func (s countedSelector) Matches(set labels.Labels) bool {
	*s.evaluations++
	return s.Selector.Matches(countedLabels{set.(*cursor), s.comparisons})
}

type countedLabels struct {
	*cursor
	comparisons *int
}

func (l countedLabels) Has(key string) bool {
	_, found := l.Lookup(key)
	return found
}

func (l countedLabels) Lookup(key string) (string, bool) {
	before := l.at
	value, found := l.cursor.Lookup(key)
	if l.at < before { // started over
		before = 0
	}
	*l.comparisons += 1 + l.at - before
	return value, found
}

// largeSelector requires the absence of the given number of labels.
func largeSelector(t testing.TB, app string, requirements int) labels.Selector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	for i := range requirements {
		s.MatchExpressions = append(s.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: fmt.Sprintf("k%d", i), Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector
}

func manyLabels(app string, n int) labels.Set {
	set := labels.Set{"app": app}
	for i := range n {
		set[fmt.Sprintf("label-%d", i)] = "y"
	}
	return set
}

func TestIndex_ComparesLabelsOncePerTarget(t *testing.T) {
	const requirements, labelCount, vpas, pods = 3000, 1000, 20, 2
	evaluations, comparisons := 0, 0
	selector := countedSelector{largeSelector(t, "x", requirements), &evaluations, &comparisons}
	m, _ := newModel(Config{})
	sync := func() {
		var all []Observed
		for i := range vpas {
			o := newObserved(fmt.Sprint("v", i), "x", 1)
			o.Selector = selector
			all = append(all, o)
		}
		m.SyncVPAs(all, now())
	}
	sync()
	for i := range pods {
		set := manyLabels("x", labelCount)
		set["run"] = fmt.Sprint(i)
		m.PutPod(aPod(fmt.Sprint("p", i), set, "a"), now())
	}
	require.Equal(t, pods, evaluations, "one per label set, however many VPAs the target has")
	require.LessOrEqual(t, comparisons, pods*(requirements+1+labelCount+2))
	for i := range vpas {
		require.Equal(t, pods, m.Find("ns", fmt.Sprint("v", i)).Pods())
	}

	evaluations, comparisons = 0, 0
	selector.Selector = largeSelector(t, "x", requirements+1)
	sync()
	require.Equal(t, 2*pods, evaluations, "which pods stay, and which are new")
	require.LessOrEqual(t, comparisons, 2*pods*(requirements+2+labelCount+2))
	require.Equal(t, pods, m.Find("ns", "v0").Pods())
}

func TestIndex_MatchesSelectorEvaluation(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	keys := []string{"a", "app", "b", "c", "z"}
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
	}
	for range 200 {
		m, _ := newModel(Config{})
		var all []Observed
		for i := range 12 {
			s := &metav1.LabelSelector{}
			for range random.Intn(4) {
				r := metav1.LabelSelectorRequirement{Key: keys[random.Intn(len(keys))], Operator: operators[random.Intn(len(operators))]}
				if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
					r.Values = []string{fmt.Sprint(random.Intn(3)), fmt.Sprint(random.Intn(3))}
				}
				s.MatchExpressions = append(s.MatchExpressions, r)
			}
			selector, err := metav1.LabelSelectorAsSelector(s)
			require.NoError(t, err)
			o := newObserved(fmt.Sprint("v", i), fmt.Sprint(i%4), 1)
			o.Selector = selector
			all = append(all, o)
		}
		m.SyncVPAs(all, now())
		all = slices.Delete(all, 3, 5)
		m.SyncVPAs(all, now())
		for i := range 6 {
			set := labels.Set{}
			for range random.Intn(5) {
				set[keys[random.Intn(len(keys))]] = fmt.Sprint(random.Intn(3))
			}
			name := fmt.Sprint("p", i)
			m.PutPod(aPod(name, set, "a"), now())
			for _, o := range all {
				selects := slices.Contains(m.Find("ns", o.Object.Name).PodNames(), name)
				require.Equal(t, o.Selector.Matches(set), selects, "%s of %s on %s", o.Object.Name, o.Selector, set)
			}
		}
	}
}

func TestDistinctWithout_MatchesTextCount(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	keys := []string{"a", "b", "c", "d"}
	for range 200 {
		m, _ := newModel(Config{})
		for range 12 {
			set := labels.Set{}
			for _, key := range []string{"a", "b", "c", "d", "other"} {
				set[key] = fmt.Sprint(random.Intn(2))
			}
			m.PutPod(aPod("p", set, "a"), now())
		}
		var sets []*labelSet
		for _, set := range m.namespaces["ns"].sets {
			sets = append(sets, set)
		}
		for n, count := range distinctWithout(sets, keys) {
			texts := distinct(sets, func(set *labelSet) string { return set.labels.without(keys[:n+1]).String() })
			require.Equal(t, texts, count)
		}
	}
}

func BenchmarkPutPod_LargeSelectors(b *testing.B) {
	for _, vpas := range []int{1, 20} {
		b.Run(fmt.Sprint("vpas=", vpas), func(b *testing.B) {
			m, _ := newModel(Config{})
			selector := largeSelector(b, "x", 30000)
			var all []Observed
			for i := range vpas {
				o := newObserved(fmt.Sprint("v", i), "x", 1)
				o.Selector = selector
				all = append(all, o)
			}
			m.SyncVPAs(all, now())
			pod := aPod("p", manyLabels("x", 10000), "a")
			b.ReportAllocs()
			for b.Loop() {
				m.PutPod(pod, now())
				m.RemovePod("ns", "p")
			}
		})
	}
}
