package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"loadline.dev/loadline/pkg/core/fleet"
)

// typicalPod returns a pod as the API server sends it, with all defaults and managed fields.
func typicalPod(t testing.TB) []byte {
	raw, err := os.ReadFile("testdata/pod.json")
	require.NoError(t, err)
	return raw
}

// lean returns a pod with only the fields that the webhook reads.
func lean(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, GenerateName: pod.GenerateName, Labels: pod.Labels}}
	if pod.Annotations != nil {
		kept.Annotations = map[string]string{}
	}
	for key, value := range pod.Annotations {
		if fleet.IsAnnotation(key) {
			kept.Annotations[key] = value
		}
	}
	for _, o := range pod.OwnerReferences {
		kept.OwnerReferences = append(kept.OwnerReferences, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, Controller: o.Controller})
	}
	containers := func(all []corev1.Container) (kept []corev1.Container) {
		for _, c := range all {
			kept = append(kept, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
		}
		return kept
	}
	kept.Spec.Containers, kept.Spec.InitContainers = containers(pod.Spec.Containers), containers(pod.Spec.InitContainers)
	kept.Spec.Resources, kept.Spec.Overhead = pod.Spec.Resources, pod.Spec.Overhead
	kept.Spec.ActiveDeadlineSeconds, kept.Spec.PriorityClassName = pod.Spec.ActiveDeadlineSeconds, pod.Spec.PriorityClassName
	return kept
}

func TestDecodePod_MatchesEncodingJSON(t *testing.T) {
	var want corev1.Pod
	require.NoError(t, json.Unmarshal(typicalPod(t), &want))
	got, err := DecodePod(typicalPod(t))
	require.NoError(t, err)
	require.Equal(t, lean(&want), got)
	require.Len(t, got.Spec.Containers, 2)
	require.Len(t, got.OwnerReferences, 1)
}

func TestDecodePod_RejectsInvalidPods(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{name: "empty", want: "byte 0: unexpected end of JSON"},
		{name: "number", in: `7`, want: `byte 0 must be '{', not "7"`},
		{name: "spec is a list", in: `{"spec":[]}`, want: `byte 8 must be '{', not "[]}"`},
		{name: "name is a number", in: `{"metadata":{"name":7}}`, want: `byte 20 must be a string, not "7}}"`},
		{name: "truncated object", in: `{"metadata":{}`, want: "byte 14: unexpected end of JSON"},
		{name: "truncated list", in: `{"metadata":{"x":[`, want: "byte 18: unexpected end of JSON"},
		{name: "two objects", in: `{} {}`, want: `byte 3 must be the end, not "{}"`},
		{name: "invalid quantity", in: `{"spec":{"containers":[{"resources":{"requests":{"cpu":"x"}}}]}}`,
			want: `must be a quantity such as 250m or 1Gi, not "\"x\"}}}]}}"`},
		{name: "quantity is an object", in: `{"spec":{"containers":[{"resources":{"requests":{"cpu":{}}}}]}}`, want: "must be a quantity"},
		{name: "restart policy is a number", in: `{"spec":{"initContainers":[{"restartPolicy":1}]}}`, want: "must be a string"},
		{name: "controller is a string", in: `{"metadata":{"ownerReferences":[{"controller":"yes"}]}}`, want: "must be true or false"},
		{name: "deadline is a string", in: `{"spec":{"activeDeadlineSeconds":"x"}}`, want: "cannot unmarshal string"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := DecodePod([]byte(tc.in))
			require.ErrorContains(t, err, "not a pod: ")
			require.ErrorContains(t, err, tc.want)
			require.NotErrorIs(t, err, ErrTooComplex)
		})
	}
}

func TestDecodePod_BoundsPartsOfAPod(t *testing.T) {
	list := func(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for _, tc := range []struct{ name, most, more string }{
		{name: "containers", most: `{"spec":{"containers":[` + list(`{}`, MaxContainers) + `]}}`,
			more: `{"spec":{"containers":[` + list(`{}`, MaxContainers+1) + `]}}`},
		{name: "containers in two lists",
			most: `{"spec":{"initContainers":[` + list(`{}`, 100) + `],"containers":[` + list(`{}`, 200) + `]}}`,
			more: `{"spec":{"initContainers":[` + list(`{}`, 101) + `],"containers":[` + list(`{}`, 200) + `]}}`},
		{name: "repeated lists of containers", most: `{"spec":{` + list(`"containers":[{}]`, MaxContainers) + `}}`,
			more: `{"spec":{` + list(`"containers":[{}]`, MaxContainers+1) + `}}`},
		{name: "parts", most: `{"metadata":{"ownerReferences":[` + list(`{}`, maxParts-2) + `]}}`,
			more: `{"metadata":{"ownerReferences":[` + list(`{}`, maxParts-1) + `]}}`},
		{name: "name", most: `{"metadata":{"name":"` + strings.Repeat("x", maxText) + `"}}`,
			more: `{"metadata":{"name":"` + strings.Repeat("x", maxText+1) + `"}}`},
		{name: "label", most: `{"metadata":{"labels":{"` + strings.Repeat("x", maxText) + `":""}}}`,
			more: `{"metadata":{"labels":{"` + strings.Repeat("x", maxText+3) + `":""}}}`},
		{name: "escapes", most: escapedLabels(maxUnescaped / maxText), more: escapedLabels(maxUnescaped/maxText + 1)},
		{name: "exponent", most: `{"spec":{"overhead":{"cpu":"1e-99"}}}`, more: `{"spec":{"overhead":{"cpu":"1e-2147483647"}}}`},
		{name: "quantity", most: `{"spec":{"overhead":{"cpu":` + strings.Repeat("9", 64) + `}}}`,
			more: `{"spec":{"overhead":{"cpu":` + strings.Repeat("9", 64+1) + `}}}`},
		{name: "unread lists do not count", most: `{"spec":{"volumes":[` + list(`{}`, 2*maxParts) + `]}}`,
			more: `{"spec":{"resources":{"claims":[` + list(`{}`, maxParts) + `]}}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := DecodePod([]byte(tc.most))
			require.NoError(t, err)
			_, err = DecodePod([]byte(tc.more))
			require.ErrorIs(t, err, ErrTooComplex)
		})
	}
}

func escapedLabels(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%d":"\n%s",`, i, strings.Repeat("x", maxText-2))
	}
	return `{"metadata":{"labels":{` + strings.TrimSuffix(b.String(), ",") + `}}}`
}

func TestDecodePod_LastDuplicateMemberWins(t *testing.T) {
	pod, err := DecodePod([]byte(`{"metadata":{"name":"a","labels":{"x":"1"}},"spec":{"containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"c"}]},"metadata":{"name":"b"}}`))
	require.NoError(t, err)
	require.Equal(t, "b", pod.Name)
	require.Nil(t, pod.Labels)
	require.Equal(t, []corev1.Container{{Name: "c"}}, pod.Spec.Containers)
	request, err := DecodeRequest([]byte(`{"request":{"uid":"1","name":"n"},"request":{"uid":"2","object":1,"object":{"a":2}}}`))
	require.NoError(t, err)
	require.Equal(t, "2", string(request.UID))
	require.Empty(t, request.Name)
	require.JSONEq(t, `{"a":2}`, string(request.Object.Raw))
}

// FuzzDecodePod compares DecodePod with encoding/json. Only JSON that API servers can send counts,
// so the input is encoded again.
func FuzzDecodePod(f *testing.F) {
	f.Add(typicalPod(f))
	f.Add([]byte(`{"metadata":{"annotations":{"a\"":"}"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],"overhead":{"cpu":"1m"}}}`))
	f.Add([]byte(`{"spec":{"initContainers":[{"restartPolicy":"Always","image":"x"}],"volumes":[{"name":"v"}]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"<é":"\u2028"},"ownerReferences":[{"controller":true,"uid":"u"},{"kind":"K"}]},"spec":{"resources":{"limits":{"cpu":1}},"priorityClassName":"p","activeDeadlineSeconds":3}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, ours := DecodePod(raw)
		var pod corev1.Pod
		if errors.Is(ours, ErrTooComplex) || json.Unmarshal(raw, &pod) != nil {
			return
		}
		if ours != nil {
			t.Fatalf("%s: %v", raw, ours)
		}
		written, err := json.Marshal(&pod)
		if err != nil {
			return
		}
		short, err := DecodePod(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		var whole corev1.Pod
		if err := json.Unmarshal(written, &whole); err != nil {
			t.Fatal(err)
		}
		if want := lean(&whole); !reflect.DeepEqual(want, short) && !bothEmpty(want, short) {
			t.Fatalf("%s\ngives %+v\nexpected %+v", written, short, want)
		}
	})
}

func bothEmpty(a, b *corev1.Pod) bool {
	one, err := json.Marshal(a)
	if err != nil {
		return false
	}
	other, err := json.Marshal(b)
	return err == nil && string(one) == string(other)
}

func TestFindAnnotations_ReturnsNames(t *testing.T) {
	names := []string{"x/a", "x/b"}
	for in, want := range map[string][]string{
		`{"metadata":{"name":"p","annotations":{"x/b":"1","y":"x/a","x/a":null}},"spec":{}}`: {"x/b", "x/a"},
		`{"metadata":{"labels":{"x/a":"1"},"managedFields":[{"x/b":{}}]},"spec":{"x/a":1}}`:  nil,
		`{"metadata":{"annotations":{"x/a/":"","X/a":""}}}`:                                  nil,
		`{"metadata":{"annotations":null}}`:                                                  nil,
		`{"metadata":null}`:                                                                  nil,
		`{"spec":{},"metadata":{"annotations":{"x/a":""}}}`:                                  {"x/a"},
		`[]`: nil,
		`{"metadata":{"annotations":{` + strings.Repeat(`"y":"",`, 2*maxParts) + `"x/a":""}}}`: {"x/a"},
	} {
		require.Equal(t, want, FindAnnotations([]byte(in), names), in[:min(len(in), 100)])
	}
}

// Nearly all pods have annotations but none of the given ones.
func TestFindAnnotations_AllocatesNothingWithoutMatch(t *testing.T) {
	names, pod := []string{"x/a", "x/b"}, []byte(`{"kind":"Pod","metadata":{"name":"p","annotations":{"y":"z","yy":"zz"}},"spec":{"containers":[{"name":"c"}]}}`)
	least := 1.0
	for range 100 { // the race detector empties pools at random
		least = min(least, testing.AllocsPerRun(1, func() { FindAnnotations(pod, names) }))
	}
	require.Zero(t, least)
}
