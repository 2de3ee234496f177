package admission

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/admission-controller/server"
	"loadline.dev/loadline/admission-controller/validate"
	"loadline.dev/loadline/pkg/testkit"
)

// shape is a review with a repeated part. A counter replaces %d in it.
type shape struct {
	before, item, between, back, after string // back repeats as often as item and follows between
	times                              int    // 0 fills the review up to server.MaxBody bytes
	twice                              bool   // the old object equals the new one
}

func (s shape) body() string {
	body := s.once()
	if !s.twice {
		return body
	}
	head, object, _ := strings.Cut(body, `"object":`)
	return head + `"oldObject":` + strings.TrimSuffix(object, "}}") + `,"object":` + object
}

func (s shape) once() string {
	times := s.times
	if each := len(s.item) + len(s.back); times == 0 && each > 0 {
		times = max(server.MaxBody-len(s.before)-len(s.between)-len(s.after), 0) / each
	}
	if !strings.Contains(s.item, "%d") {
		return s.before + strings.Repeat(s.item, times) + s.between + strings.Repeat(s.back, times) + s.after
	}
	var b strings.Builder
	b.WriteString(s.before)
	for i := 0; b.Len()+len(s.item)+len(s.after)+10 < server.MaxBody && (s.times == 0 || i < s.times); i++ {
		b.WriteString(strings.ReplaceAll(s.item, "%d", fmt.Sprint(i)))
	}
	return b.String() + s.after
}

const (
	podReview = `{"request":{"uid":"u","resource":{"group":"","version":"v1","resource":"pods"},"namespace":"default","operation":"CREATE","object":`
	vpaReview = `{"request":{"uid":"u","resource":{"group":"autoscaling.k8s.io","version":"v1","resource":"verticalpodautoscalers"},"namespace":"default","operation":"UPDATE","object":`
	policies  = vpaReview + `{"spec":{"resourcePolicy":{"containerPolicies":[`
	endPolicy = `]}}}}}`

	// amount is a quantity that is slow to parse.
	amount = `999999999999999999999999999999.999999999999999999999999999999`

	sizingReview = `{"request":{"uid":"u","resource":{"group":"loadline.dev","version":"v1alpha1","resource":"sizingpolicies"},"operation":"CREATE","object":{"spec":{`
)

var escaped = strings.Repeat(`\u00e9`, 40)

// hostile has expensive reviews of up to server.MaxBody bytes.
var hostile = map[string]shape{
	"containers":             {before: podReview + `{"spec":{"containers":[`, item: `{},`, after: `{}]}}}}`},
	"named containers":       {before: podReview + `{"spec":{"containers":[`, item: `{"name":"c%d","resources":{"requests":{"cpu":"1m"},"limits":{"cpu":"2m"}}},`, after: `{}]}}}}`},
	"containers, the most":   {before: podReview + `{"spec":{"containers":[`, item: `{"name":"c%d","resources":{"requests":{"cpu":"1m"},"limits":{"cpu":"2m"}}},`, after: `{}]}}}}`, times: 299},
	"init containers":        {before: podReview + `{"spec":{"initContainers":[`, item: `{},`, after: `{}]}}}}`},
	"ephemeral containers":   {before: podReview + `{"spec":{"ephemeralContainers":[`, item: `{},`, after: `{}]}}}}`},
	"repeated lists":         {before: podReview + `{"spec":{`, item: `"containers":[{}],`, after: `"x":1}}}}`},
	"repeated specs":         {before: podReview + `{`, item: `"spec":{},`, after: `"x":1}}}`},
	"environment":            {before: podReview + `{"spec":{"containers":[{"env":[`, item: `{"name":"a"},`, after: `{}]}]}}}}`},
	"volumes":                {before: podReview + `{"spec":{"volumes":[`, item: `{"name":"a"},`, after: `{}]}}}}`},
	"labels":                 {before: podReview + `{"metadata":{"labels":{`, item: `"%d":"",`, after: `"x":""}}}}}`},
	"annotations":            {before: podReview + `{"metadata":{"annotations":{`, item: `"%d":"",`, after: `"x":""}}}}}`},
	"owners":                 {before: podReview + `{"metadata":{"ownerReferences":[`, item: `{},`, after: `{}]}}}}`},
	"resources":              {before: podReview + `{"spec":{"containers":[{"resources":{"requests":{`, item: `"%d":1,`, after: `"x":1}}}]}}}}`},
	"resources of the pod":   {before: podReview + `{"spec":{"resources":{"requests":{`, item: `"%d":1,`, after: `"x":1}}}}}}`},
	"claims":                 {before: podReview + `{"spec":{"containers":[{"resources":{"claims":[`, item: `{},`, after: `{}]}}]}}}}`},
	"long name":              {before: podReview + `{"metadata":{"name":"`, item: `x`, after: `"}}}}`},
	"escaped name":           {before: podReview + `{"metadata":{"name":"`, item: `\u00e9`, after: `"}}}}`},
	"escaped label":          {before: podReview + `{"metadata":{"labels":{"`, item: `\"`, after: `":""}}}}}`},
	"escaped annotation":     {before: podReview + `{"metadata":{"annotations":{"x":"`, item: `\\`, after: `"}}}}}`},
	"long quantity":          {before: podReview + `{"spec":{"overhead":{"cpu":"`, item: `9`, after: `"}}}}}`},
	"long number":            {before: podReview + `{"spec":{"activeDeadlineSeconds":`, item: `9`, after: `}}}}`},
	"exponent":               {before: podReview + `{"spec":{"overhead":{`, item: `"%d":"1e-2147483647",`, after: `"x":1}}}}}`, times: 1},
	"deep list":              {before: podReview + `{"metadata":{"annotations":`, item: `[`, back: `]`, after: `}}}}`},
	"deep object":            {before: podReview + `{"spec":{"x":`, item: `{"x":`, between: `1`, back: `}`, after: `}}}}`},
	"no pod":                 {before: podReview + `{"spec":{"priorityClassName":7,"containers":[`, item: `{},`, after: `{}]}}}}`},
	"not ended":              {before: podReview + `{"spec":{"containers":[`, item: `{},`},
	"no review":              {before: `{"request":{"uid":7,"userInfo":{"groups":[`, item: `"",`, after: `""]}}}`},
	"groups":                 {before: `{"request":{"uid":"u","userInfo":{"groups":[`, item: `"",`, after: `""]}}}`},
	"long UID":               {before: `{"request":{"uid":"`, item: `x`, after: `"}}`},
	"unknown resource":       {before: `{"request":{"uid":"u","resource":{"resource":"services"},"object":[`, item: `{},`, after: `{}]}}`},
	"repeated requests":      {before: `{`, item: `"request":{},`, after: `"x":1}`},
	"policies":               {before: policies, item: `{},`, after: `{}` + endPolicy},
	"policies, 15,000":       {before: policies, item: `{},`, after: `{}` + endPolicy, times: 15000},
	"policies, wrong":        {before: policies, item: `{"mode":"x","minAllowed":{"cpu":"1u"},"controlledResources":["a","b"]},`, after: `{}` + endPolicy, times: 200},
	"bounds":                 {before: policies + `{"minAllowed":{`, item: `"%d":1,`, after: `"x":1}}` + endPolicy},
	"bounds, 15,000":         {before: policies + `{"containerName":"c","minAllowed":{`, item: `"%d":1,`, after: `"x":1}}` + endPolicy, times: 15000},
	"controlled resources":   {before: policies + `{"controlledResources":[`, item: `"a",`, after: `"a"]}` + endPolicy},
	"long mode":              {before: policies + `{"mode":"`, item: `é`, after: `"}` + endPolicy, times: 700_000},
	"bound of many digits":   {before: policies + `{"minAllowed":{"cpu":"`, item: `9`, after: `"}}` + endPolicy, times: 1 << 20},
	"exponent in a bound":    {before: policies, item: `{"containerName":"c","minAllowed":{"cpu":"1e-2147483647"}},`, after: `{}` + endPolicy, times: 100},
	"recommenders":           {before: vpaReview + `{"spec":{"recommenders":[`, item: `{},`, after: `{}]}}}}`},
	"recommenders, 15,000":   {before: vpaReview + `{"spec":{"recommenders":[`, item: `{},`, after: `{}]}}}}`, times: 15000},
	"managed fields, 15,000": {before: vpaReview + `{"metadata":{"managedFields":[`, item: `{},`, after: `{}]}}}}`, times: 15000},
	"conditions, 15,000":     {before: vpaReview + `{"status":{"conditions":[`, item: `{},`, after: `{}]}}}}`, times: 15000},
	"recommendations":        {before: vpaReview + `{"status":{"recommendation":{"containerRecommendations":[`, item: `{},`, after: `{}]}}}}}`, times: 15000},
	"labels of a VPA":        {before: vpaReview + `{"metadata":{"labels":{`, item: `"%d":"",`, after: `"x":""}}}}}`, times: 15000},
	"recipe":                 {before: vpaReview + `{"metadata":{"annotations":{"loadline.dev/recipe":"loadline:`, item: `x=1,`, after: `"}}}}}`, times: 300_000},
	"annotation of a VPA":    {before: vpaReview + `{"metadata":{"annotations":{"x":"`, item: `\"`, after: `"}}}}}`, times: 700_000},
	"deep VPA":               {before: vpaReview, item: `{"spec":`, between: `1`, back: `}`, after: `}}`},
	"deep list in a VPA":     {before: vpaReview + `{"x":`, item: `[`, back: `]`, after: `}}}`, times: 9000},
	"no VPA":                 {before: vpaReview + `{"spec":{"targetRef":{"kind":`, item: `9`, after: `}}}}}`, times: 1 << 20},
	"namespace names":        {before: sizingReview + `"namespaces":{"names":[`, item: `"a",`, after: `"a"],"exclude":["b"]}}}}}`, times: 15000},
	"namespaces, same":       {before: sizingReview + `"namespaces":{"names":["` + strings.Repeat(`a","`, 9000) + `"],"exclude":[`, item: `"b",`, after: `"b"]}}}}}`, times: 9000},
	"labels of a selector":   {before: sizingReview + `"namespaces":{"selector":{"matchLabels":{`, item: `"%d b":"c d",`, after: `"x":""}}}}}}}`, times: 15000},
	"expressions":            {before: sizingReview + `"namespaces":{"selector":{"matchExpressions":[`, item: `{"operator":"x"},`, after: `{}]}}}}}}`, times: 9000},
	"values of a selector":   {before: sizingReview + `"namespaces":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":[`, item: `"a b",`, after: `"a"]}]}}}}}}`, times: 15000},
	"workloads":              {before: sizingReview + `"workloads":[`, item: `{"kind":"X"},`, after: `{}]}}}}`, times: 9000},
	"metadata of made VPAs":  {before: sizingReview + `"vpaMetadata":{"labels":{`, item: `"%d b":"c d",`, after: `"x":""}}}}}}`, times: 15000},
	"windows and a duration": {before: sizingReview + `"rollout":{"cooldown":7,"schedule":{"windows":[`, item: `{"start":"x"},`, after: `{}]}}}}}}`, times: 9000},
	"days":                   {before: sizingReview + `"rollout":{"schedule":{"daysOfWeek":[`, item: `"x",`, after: `"x"]}}}}}}`, times: 15000},
	"zone":                   {before: sizingReview + `"rollout":{"schedule":{"timezone":"`, item: `x`, after: `"}}}}}}`, times: 1_000_000},
	"recipe of a policy":     {before: sizingReview + `"recipe":"loadline:`, item: `x=1,`, after: `"}}}}`, times: 300_000},
	"policies of a policy":   {before: sizingReview + `"resourcePolicy":{"containerPolicies":[`, item: `{},`, after: `{}]}}}}}`, times: 15000},
	"exponent in a policy":   {before: sizingReview + `"resourcePolicy":{"containerPolicies":[`, item: `{"minAllowed":{"cpu":"1e-2147483647"}},`, after: `{}]}}}}}`, times: 100},
	"amounts":                {before: podReview + `{"spec":{"overhead":{`, item: `"%d":"` + amount + `",`, after: `"x":1}}}}}`, times: 19000},
	"escaped labels":         {before: podReview + `{"metadata":{"labels":{`, item: `"%d` + escaped + `":"` + escaped + `",`, after: `"x":""}}}}}`, times: 9000},
	"large pod":              {before: podReview + `{"spec":{"x":[` + strings.Repeat("1,", 2<<20) + `1],"containers":[`, item: `{"name":"c%d","resources":{"requests":{"cpu":"1m","memory":"1Mi"},"limits":{"cpu":"2m","memory":"2Mi"}}},`, after: `{}]}}}}`, times: 299},
	"amounts, update":        {before: policies + `{"containerName":"c","minAllowed":{`, item: `"%d":"` + amount + `",`, after: `"x":1}}` + endPolicy, times: 19000, twice: true},
	"amounts, 4,000":         {before: vpaReview + `{"metadata":{"annotations":{"x":"` + strings.Repeat(`\u00e9`, 200_000) + `"}},"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"c","minAllowed":{`, item: `"%d":"` + amount + `",`, after: `"x":1}}` + endPolicy, times: 3990, twice: true},
	"amounts of a policy":    {before: sizingReview + `"rollout":{"cooldown":7},"resourcePolicy":{"containerPolicies":[{"containerName":"c","minAllowed":{`, item: `"%d":"` + amount + `",`, after: `"x":1}}` + endPolicy, times: 3990, twice: true},
	"amounts, 19,000":        {before: sizingReview + `"rollout":{"cooldown":7},"resourcePolicy":{"containerPolicies":[{"containerName":"c","minAllowed":{`, item: `"%d":"` + amount + `",`, after: `"x":1}}` + endPolicy, times: 19000, twice: true},
	"deleted VPA":            {before: vpaReview + `{"metadata":{"deletionTimestamp":"x"},"spec":[`, item: `1,`, after: `1]}}}`, times: 1_300_000, twice: true},
	"long annotation":        {before: vpaReview + `{"spec":{},"metadata":{"annotations":{"x":"`, item: `\u00e9`, after: `"}}}}}`, times: 260_000, twice: true},
	"long name of a target":  {before: vpaReview + `{"spec":{"targetRef":{"name":"`, item: `\"`, after: `"}}}}}`, times: 780_000, twice: true},
	"names, large policy":    {before: sizingReview + `"rollout":{"cooldown":7},"namespaces":{"names":["`, item: `x`, after: `"]}}}}}`, times: 1_500_000, twice: true},
	"long namespace":         {before: sizingReview + `"rollout":{"cooldown":7},"namespaces":{"names":["`, item: `x`, after: `"]}}}}}`, times: 520_000, twice: true},
	"long name of workload":  {before: sizingReview + `"rollout":{"cooldown":7},"workloads":[{"name":"`, item: `x`, after: `"}]}}}}`, times: 520_000, twice: true},
	"long label":             {before: sizingReview + `"rollout":{"cooldown":7},"namespaces":{"selector":{"matchLabels":{"x":"`, item: `x`, after: `"}}}}}}}`, times: 520_000, twice: true},
	"long key of a label":    {before: sizingReview + `"rollout":{"cooldown":7},"vpaMetadata":{"labels":{"`, item: `<`, after: `":""}}}}}}`, times: 520_000, twice: true},
	"large policy":           {before: sizingReview + `"rollout":{"cooldown":7},"x":"`, item: `<`, after: `"}}}}`, times: 520_000, twice: true},
	"too large a policy":     {before: sizingReview + `"rollout":{"cooldown":7},"x":"`, item: `<`, after: `"}}}}`, times: 1_500_000, twice: true},
	"old object":             {before: vpaReview + `{"spec":{}},"oldObject":{"spec":{"recommenders":[`, item: `{},`, after: `{}]}}}}`, times: 15000},
}

// webhookForTests reviews pods, VPAs and policies. Each pod has a VPA that recommends more than
// LimitRanges and a quota allow.
func webhookForTests(t testing.TB) http.Handler {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	vpa := testkit.VPA("v")
	for i := range server.MaxContainers {
		testkit.Recommend(fmt.Sprintf("c%d", i), "cpu=150m memory=120Mi")(vpa)
	}
	h := handlerOf(t, fakeFinder{vpa: vpa}, testkit.LimitRange("l", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: testkit.List("cpu=100m memory=100Mi")}),
		testkit.LimitRange("m", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: testkit.List("cpu=20 memory=20Gi")}))
	h.quotas = func(string) []*corev1.ResourceQuota {
		return []*corev1.ResourceQuota{{Status: corev1.ResourceQuotaStatus{Hard: testkit.List("cpu=10"), Used: testkit.List("cpu=1")}}}
	}
	config := server.Config{Handlers: []server.Handler{h.handler(), vpaHandler(validate.Config{}, silent, ignored), policyHandler(validate.Config{})}, Recorder: newMetrics(prometheus.NewRegistry())}
	return server.New(config).Handler(klog.Background())
}

func review(h http.Handler, body string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPost, "/?timeout=30s", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	return w
}

// processorTime returns the user CPU time of the process, which other processes hardly affect.
func processorTime(t testing.TB) time.Duration {
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano())
}

const (
	// maxHeap is the maximum number of bytes that one review may allocate, garbage included.
	maxHeap = 64 << 20
	// maxTime is the maximum CPU time of one review in multiples of the yardstick, which takes 20
	// ms where the bound of 150 ms in docs/admission.md applies.
	maxTime = 7.5
	// attempts is the number of measurements of a review. Load on the machine can double the CPU
	// time of the same work.
	attempts = 12
)

// raced is set under the race detector, which makes times meaningless. `make unit` runs these tests
// without it as well.
var raced bool

// slowdown is the factor by which coverage instrumentation slows the code down during fuzzing.
var slowdown = 1.

var document = []byte("[" + strings.Repeat("{},", (server.MaxBody-4)/3) + "{}]")

// yardstick returns the CPU time in which the standard library validates a JSON document of the
// maximum length of a review. It calibrates the bounds to the speed of the machine.
func yardstick(t testing.TB) time.Duration {
	start := processorTime(t)
	require.True(t, json.Valid(document))
	return processorTime(t) - start
}

// bounded fails if a review exceeds maxHeap or maxTime. The shortest of several attempts counts,
// for the review and for the yardstick.
func bounded(t testing.TB, h http.Handler, body string) {
	t.Helper()
	unit, least := time.Hour, time.Hour
	for range attempts {
		unit = min(unit, yardstick(t))
		runtime.GC() // collect the garbage of earlier reviews
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := processorTime(t)
		w := review(h, body)
		took := processorTime(t) - start
		runtime.ReadMemStats(&after)
		heap := after.TotalAlloc - before.TotalAlloc
		t.Logf("%7d bytes: %5.1f MiB of the heap, %5.1f ms (yardstick %.1f ms), answer of %d bytes", len(body), float64(heap)/(1<<20), took.Seconds()*1000, unit.Seconds()*1000, w.Body.Len())
		require.LessOrEqual(t, heap, uint64(maxHeap))
		require.LessOrEqual(t, w.Body.Len(), 1<<20)
		if least = min(least, took); raced || least.Seconds() <= unit.Seconds()*maxTime*slowdown {
			return
		}
	}
	t.Fatalf("a review of %d bytes took %s of the processors, %s to check JSON of %d bytes, must be at most %.1f times that", len(body), least, unit, len(document), maxTime*slowdown)
}

func TestReview_DeepObjectAdmitsPodsAndRefusesVPAs(t *testing.T) {
	h := webhookForTests(t)
	deep := shape{item: `{"x":`, between: `1`, back: `}`, times: 101}.body()
	answer := review(h, podReview+deep+`}}`).Body.String()
	require.Contains(t, answer, `"uid":"u","allowed":true`)
	require.Contains(t, answer, "more than 100 levels")
	answer = review(h, vpaReview+deep+`}}`).Body.String()
	require.Contains(t, answer, `"uid":"u","allowed":false`)
	require.Contains(t, answer, "more than 100 levels")
}

// The UID and the resource precede the object, so the webhook can answer the review.
func TestReview_InvalidObjectAdmitsPodsAndRefusesVPAs(t *testing.T) {
	h := webhookForTests(t)
	for name, object := range map[string]string{
		"truncated":                 `{"spec":{"x":[`,
		"invalid literal":           `{"spec":nul}}}`,
		"brackets that differ":      `{"spec":[}}}}`,
		"deeper than JSON decoders": strings.Repeat(`[`, 10_001) + strings.Repeat(`]`, 10_001) + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, review(h, podReview+object).Body.String(), `"uid":"u","allowed":true`)
			require.Contains(t, review(h, vpaReview+object).Body.String(), `"uid":"u","allowed":false`)
		})
	}
}

func TestWebhook_RefusesOnlyVPAsWhenBusy(t *testing.T) {
	require.False(t, policyHandler(validate.Config{}).Guards)
	require.True(t, vpaHandler(validate.Config{}, silent, ignored).Guards)
	require.False(t, handlerOf(t, fakeFinder{}).handler().Guards)
}

func TestReview_BoundsHeapAndCPUTime(t *testing.T) {
	h := webhookForTests(t)
	for name, s := range hostile {
		t.Run(name, func(t *testing.T) {
			body := s.body()
			require.LessOrEqual(t, len(body), server.MaxBody)
			bounded(t, h, body)
		})
	}
}

func FuzzReviewIsBounded(f *testing.F) {
	if fuzzing := flag.Lookup("test.fuzz"); fuzzing.Value.String() != "" {
		slowdown = 8 // coverage instrumentation is slow, go test checks findings without it
	}
	for _, s := range hostile {
		if s.times > 0 && len(s.before) < maxShape { // TestReview_BoundsHeapAndCPUTime covers the others
			f.Add(s.before, s.item, s.between, s.back, s.after, s.times, s.twice)
		}
	}
	f.Add(podReview, `{"spec":{"containers":[`, ``, `]}}`, `}}`, 1, false)
	h := webhookForTests(f)
	f.Fuzz(func(t *testing.T, before, item, between, back, after string, times int, twice bool) {
		if len(before)+len(item)+len(between)+len(back)+len(after) > maxShape || times < 0 || times*(len(item)+len(back)) > server.MaxBody {
			return
		}
		body := shape{before, item, between, back, after, times, twice}.body()
		if len(body) <= server.MaxBody { // larger bodies are not read
			bounded(t, h, body)
		}
	})
}

// maxShape is the maximum length of the parts of a shape in bytes during fuzzing.
const maxShape = 1 << 16

func TestReview_BoundsHeapOfConcurrentReviews(t *testing.T) {
	const most = 300 << 20 // bytes of heap at any time, the limit in the manifest is 500 MiB
	h := webhookForTests(t)
	bodies := []string{hostile["owners"].body(), hostile["resources"].body(), hostile["containers"].body(), hostile["labels"].body()}
	var sending sync.WaitGroup
	for i := range 100 {
		sending.Go(func() {
			if answer := review(h, bodies[i%len(bodies)]).Body.String(); !strings.Contains(answer, `"uid":"u","allowed":true`) {
				t.Errorf("answer %s", answer)
			}
		})
	}
	ended := make(chan struct{})
	go func() { defer close(ended); sending.Wait() }()
	var highest uint64
	for open := true; open; {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		highest = max(highest, now.HeapAlloc)
		select {
		case <-ended:
			open = false
		case <-time.After(time.Millisecond):
		}
	}
	t.Logf("%d MiB of the heap at most", highest>>20)
	require.Less(t, highest, uint64(most))
}
