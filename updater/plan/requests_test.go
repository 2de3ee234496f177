package plan

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"

	"loadline.dev/loadline/pkg/kube/client"
	"loadline.dev/loadline/pkg/kube/target"
)

// apiServer counts requests. It serves the kinds Room, with a scale subresource, and
// VirtualMachine, without one.
type apiServer struct{ discovery, objects atomic.Int32 }

func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	answers := map[string]string{
		"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}],"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}]}`,
		"/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[{"name":"rooms","kind":"Room","namespaced":true,"verbs":["get"]},
			{"name":"rooms/scale","kind":"Scale","namespaced":true,"verbs":["get"]},{"name":"virtualmachines","kind":"VirtualMachine","namespaced":true,"verbs":["get"]}]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`,
		"/apis/example.com/v1/namespaces/served/rooms/blue/scale": `{"kind":"Scale","apiVersion":"autoscaling/v1","spec":{"replicas":1},"status":{"selector":"app=web"}}`,
	}
	if strings.Contains(r.URL.Path, "/namespaces/") {
		s.objects.Add(1)
	} else {
		s.discovery.Add(1)
	}
	code, text := http.StatusOK, answers[r.URL.Path]
	if text == "" {
		code, text = http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	}
	return &http.Response{StatusCode: code, Request: r, Body: io.NopCloser(strings.NewReader(text)), Header: http.Header{"Content-Type": {"application/json"}}}, nil
}

type podList []*corev1.Pod

func (l podList) List(labels.Selector) ([]*corev1.Pod, error) { return l, nil }

func (l podList) Pods(string) corelisters.PodNamespaceLister { return l }

func (l podList) Get(name string) (*corev1.Pod, error) {
	return l[slices.IndexFunc(l, func(p *corev1.Pod) bool { return p.Name == name })], nil
}

// Most pods in a cluster with many custom workloads have no VPA.
func TestReader_MakesNoRequestsForUntargetedOwners(t *testing.T) {
	const many = 10_000
	server := &apiServer{}
	clients, err := client.New(&rest.Config{Host: "http://server", Transport: server})
	require.NoError(t, err)
	r := newReader(t, targeting("v", "served", "example.com/v1", "Room", "blue"))
	r.Targets = target.New(informers.NewSharedInformerFactory(fake.NewClientset(), 0), client.NewScales(clients.Kube).Scale)
	pods := podList{controlled("served", "blue-0", "example.com/v1", "Room", "blue")}
	r.Pods = pods
	require.Len(t, read(t, r).VPAs, 1)
	require.EqualValues(t, 1, server.objects.Load())
	discovery := server.discovery.Load()

	for i := range many {
		pods = append(pods, controlled("elsewhere", fmt.Sprintf("room-%d", i), "example.com/v1", "Room", fmt.Sprint(i)))
	}
	r.Pods = pods
	require.Len(t, read(t, r).VPAs, 1)
	require.EqualValues(t, 1, server.objects.Load(), "no VPA is in their namespace")

	for i := range many {
		pods = append(pods, controlled("served", fmt.Sprintf("vm-%d", i), "example.com/v1", "VirtualMachine", fmt.Sprint(i)))
	}
	r.Pods = pods
	require.Len(t, read(t, r).VPAs, 1)
	require.EqualValues(t, 1, server.objects.Load(), "their kind has no scale subresource")
	require.Equal(t, discovery, server.discovery.Load(), "which is known already")
}
