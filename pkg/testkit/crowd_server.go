package testkit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	loadlinev1alpha1 "loadline.dev/loadline/apis/loadline/v1alpha1"
	vpascheme "loadline.dev/loadline/pkg/generated/clientset/versioned/scheme"
)

// CrowdServer is an API server with the objects of a Crowd, for clients that list and watch all
// namespaces. A watch returns the existing objects and then a bookmark every minute.
type CrowdServer struct {
	Crowd Crowd
	// Old servers do not support watches that begin with a list.
	Old bool

	largest atomic.Int64
}

// Largest returns the number of objects in the largest list sent so far.
func (s *CrowdServer) Largest() int { return int(s.largest.Load()) }

type crowdKind struct {
	schema.GroupVersionKind
	count  int
	object func(i int) runtime.Object
}

func (k crowdKind) custom() bool {
	return k.Group == vpav1.SchemeGroupVersion.Group || k.Group == loadlinev1alpha1.GroupName
}

var absentKinds = map[string]schema.GroupVersionKind{
	"statefulsets":                     {Group: "apps", Version: "v1", Kind: "StatefulSet"},
	"daemonsets":                       {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	"replicationcontrollers":           {Version: "v1", Kind: "ReplicationController"},
	"jobs":                             {Group: "batch", Version: "v1", Kind: "Job"},
	"cronjobs":                         {Group: "batch", Version: "v1", Kind: "CronJob"},
	"limitranges":                      {Version: "v1", Kind: "LimitRange"},
	"resourcequotas":                   {Version: "v1", Kind: "ResourceQuota"},
	"horizontalpodautoscalers":         {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	"poddisruptionbudgets":             {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	"events":                           {Version: "v1", Kind: "Event"},
	"verticalpodautoscalercheckpoints": vpav1.SchemeGroupVersion.WithKind("VerticalPodAutoscalerCheckpoint"),
}

func (s *CrowdServer) kind(resource string) (crowdKind, bool) {
	c := s.Crowd
	switch resource {
	case "pods":
		return crowdKind{corev1.SchemeGroupVersion.WithKind("Pod"), c.Pods, func(i int) runtime.Object { return c.Pod(i) }}, true
	case "nodes":
		return crowdKind{corev1.SchemeGroupVersion.WithKind("Node"), c.Nodes, func(i int) runtime.Object { return c.Node(i) }}, true
	case "deployments":
		return crowdKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), c.Deployments, func(i int) runtime.Object { return c.Deployment(i) }}, true
	case "replicasets":
		return crowdKind{appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), c.Deployments * c.Revisions, func(i int) runtime.Object { return c.ReplicaSet(i) }}, true
	case "namespaces":
		return crowdKind{corev1.SchemeGroupVersion.WithKind("Namespace"), c.Namespaces(), func(i int) runtime.Object { return c.Namespace(i) }}, true
	case "sizingpolicies":
		return crowdKind{loadlinev1alpha1.SchemeGroupVersion.WithKind("SizingPolicy"), 1, func(int) runtime.Object { return c.Policy() }}, c.UnderAPolicy
	case "sizingrecords":
		return crowdKind{loadlinev1alpha1.SchemeGroupVersion.WithKind("SizingRecord"), c.Deployments, func(i int) runtime.Object { return c.Record(i) }}, c.UnderAPolicy
	case "verticalpodautoscalers":
		return crowdKind{vpav1.SchemeGroupVersion.WithKind("VerticalPodAutoscaler"), c.Deployments, func(i int) runtime.Object { return c.VPA(i) }}, true
	}
	k, known := absentKinds[resource]
	return crowdKind{GroupVersionKind: k}, known
}

// revision is the resource version of all responses.
const revision = "1000000000"

// ServeHTTP handles list and watch requests.
func (s *CrowdServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(r.URL.Path, "/")
	k, known := s.kind(path[len(path)-1])
	if !known {
		http.NotFound(w, r)
		return
	}
	switch watch, first := r.FormValue("watch") != "", r.FormValue("sendInitialEvents") == "true"; {
	case watch && first && s.Old:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","message":"sendInitialEvents: Forbidden","code":422}`))
	case watch:
		s.watch(w, r, k, first)
	default:
		s.list(w, r, k)
	}
}

func media(k crowdKind) runtime.SerializerInfo {
	wanted := runtime.ContentTypeProtobuf
	if k.custom() {
		wanted = runtime.ContentTypeJSON
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), wanted)
	return info
}

func encode(k crowdKind, object runtime.Object) []byte {
	if k.custom() {
		data, err := json.Marshal(object)
		if err != nil {
			panic(err)
		}
		return data
	}
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(media(k).Serializer, k.GroupVersion()), object)
	if err != nil {
		panic(err)
	}
	return data
}

func (s *CrowdServer) watch(w http.ResponseWriter, r *http.Request, k crowdKind, first bool) {
	info := media(k)
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	frames := info.StreamSerializer.NewFrameWriter(w)
	encoder := scheme.Codecs.EncoderForVersion(info.StreamSerializer.Serializer, schema.GroupVersion{Version: "v1"})
	send := func(event string, data []byte) bool {
		return encoder.Encode(&metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: data}}, frames) == nil
	}
	if first {
		for i := range k.count {
			if !send("ADDED", encode(k, k.object(i))) {
				return
			}
		}
		if !send("BOOKMARK", encode(k, lastOf(k))) {
			return
		}
	}
	for minute := time.Tick(time.Minute); ; {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-r.Context().Done():
			return
		case <-minute: // clients list again without bookmarks
		}
		if !send("BOOKMARK", encode(k, bookmark(k))) {
			return
		}
	}
}

// lastOf returns the bookmark that ends an initial list.
func lastOf(k crowdKind) runtime.Object {
	object := bookmark(k)
	object.(metav1.Object).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return object
}

func bookmark(k crowdKind) runtime.Object {
	object, err := scheme.Scheme.New(k.GroupVersionKind)
	if k.custom() {
		object, err = vpascheme.Scheme.New(k.GroupVersionKind)
		object.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	}
	if err != nil {
		panic(err)
	}
	object.(metav1.Object).SetResourceVersion(revision)
	return object
}

// list sends a page as JSON, which every client can decode.
func (s *CrowdServer) list(w http.ResponseWriter, r *http.Request, k crowdKind) {
	from, _ := strconv.Atoi(r.FormValue("continue"))
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	to := k.count
	if limit > 0 && r.FormValue("resourceVersion") != "0" { // lists from the server's cache are not paged
		to = min(to, from+limit)
	}
	for before := s.largest.Load(); int64(to-from) > before && !s.largest.CompareAndSwap(before, int64(to-from)); before = s.largest.Load() {
	}
	next := ""
	if to < k.count {
		next = strconv.Itoa(to)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":%q,"continue":%q},"items":[`, k.Kind+"List", k.GroupVersion(), revision, next)
	for i := from; i < to; i++ {
		if i > from {
			_, _ = w.Write([]byte(","))
		}
		data, err := json.Marshal(k.object(i))
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(data)
	}
	_, _ = w.Write([]byte("]}"))
}
