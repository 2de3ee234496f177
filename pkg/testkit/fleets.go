package testkit

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Fleets simulates kind Fleet of example.com/v1 with a scale subresource, and kind Crate without.
type Fleets struct {
	mu     sync.Mutex
	scales map[string]autoscalingv1.Scale // by path
	broken int                            // status of all object responses; 0: normal
	asked  int

	uninstalled bool
	learned     int
}

// Install sets whether the server serves the group. Initially it does.
func (f *Fleets) Install(installed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uninstalled = !installed
}

// Learned returns the number of discovery requests for the list of groups.
func (f *Fleets) Learned() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.learned
}

// Asked returns the number of requests for objects.
func (f *Fleets) Asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// Put adds or replaces a Fleet.
func (f *Fleets) Put(namespace, name, uid string, replicas int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.scales == nil {
		f.scales = map[string]autoscalingv1.Scale{}
	}
	f.scales[scalePath(namespace, name)] = autoscalingv1.Scale{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas}, Status: autoscalingv1.ScaleStatus{Selector: "app=" + name},
	}
}

// Delete removes a Fleet.
func (f *Fleets) Delete(namespace, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.scales, scalePath(namespace, name))
}

// Break makes all requests for objects fail with a status, such as 403. 0 ends that.
func (f *Fleets) Break(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = status
}

func scalePath(namespace, name string) string {
	return "/apis/example.com/v1/namespaces/" + namespace + "/fleets/" + name + "/scale"
}

// In returns a cluster that also serves the Fleets.
func (f *Fleets) In(kube kubernetes.Interface) kubernetes.Interface {
	asks := &http.Client{Transport: roundTrip(func(r *http.Request) *http.Response {
		recorder := httptest.NewRecorder()
		f.answer(recorder, r.URL.Path)
		answer := recorder.Result()
		answer.Request = r
		return answer
	})}
	known, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: "http://cluster.local", QPS: -1}, asks)
	if err != nil {
		panic(err) // the config is constant
	}
	return fleetCluster{kube, known}
}

type roundTrip func(*http.Request) *http.Response

// RoundTrip handles a request.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

type fleetCluster struct {
	kubernetes.Interface

	known *discovery.DiscoveryClient
}

// Discovery returns the discovery client of the group.
func (c fleetCluster) Discovery() discovery.DiscoveryInterfaces { return c.known }

// IsWatchListSemanticsUnSupported returns true, because a fake cluster does not stream lists.
func (c fleetCluster) IsWatchListSemanticsUnSupported() bool { return true }

var fleetDiscovery = map[string]string{
	"/api": `{"kind":"APIVersions","versions":[]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v1","version":"v1"}],
		"preferredVersion":{"groupVersion":"example.com/v1","version":"v1"}}]}`,
	"/apis/example.com/v1": `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[
		{"name":"fleets","kind":"Fleet","namespaced":true,"verbs":["get"]},{"name":"fleets/scale","kind":"Scale","group":"autoscaling","version":"v1","namespaced":true,"verbs":["get"]},
		{"name":"crates","kind":"Crate","namespaced":true,"verbs":["get"]}]}`,
}

func (f *Fleets) answer(w http.ResponseWriter, path string) {
	w.Header().Set("Content-Type", "application/json")
	f.mu.Lock()
	defer f.mu.Unlock()
	if path == "/apis" {
		f.learned++
		if f.uninstalled {
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
			return
		}
	}
	if text, known := fleetDiscovery[path]; known {
		_, _ = w.Write([]byte(text))
		return
	}
	f.asked++
	scale, found := f.scales[path]
	switch {
	case f.broken != 0:
		refuse(w, f.broken)
	case !found:
		refuse(w, http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(scale)
	}
}

func refuse(w http.ResponseWriter, status int) {
	reason := metav1.StatusReason(strings.ReplaceAll(http.StatusText(status), " ", ""))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(status), Message: "refused"})
}
