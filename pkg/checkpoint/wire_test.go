package checkpoint

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
	"loadline.dev/loadline/pkg/generated/clientset/versioned"
	"loadline.dev/loadline/pkg/generated/informers/externalversions"
)

// wire serves checkpoints like an API server, one of them with malformed weights. Its watches send
// no events.
func wire(t *testing.T) versioned.Interface {
	var items []json.RawMessage
	for _, c := range []*vpav1.VerticalPodAutoscalerCheckpoint{object("web", "a", 50), object("web", "b", 50), object("web", "c", 50)} {
		raw, err := json.Marshal(c)
		require.NoError(t, err)
		if c.Spec.ContainerName == "b" {
			var object map[string]any
			require.NoError(t, json.Unmarshal(raw, &object))
			object["status"].(map[string]any)["cpuHistogram"].(map[string]any)["bucketWeights"] = map[string]any{"first": []int{1}}
			raw, err = json.Marshal(object)
			require.NoError(t, err)
		}
		items = append(items, raw)
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpointList",
		"metadata": map[string]any{"resourceVersion": "7"}, "items": items})
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") == "true": // like a server without watch lists
			http.Error(w, `{"kind":"Status","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
		case query.Get("watch") != "":
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(list) // a failure shows in the client
		}
	}))
	t.Cleanup(server.Close)
	client, err := versioned.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return client
}

func TestLoad_MalformedWeightsKeepOtherCheckpoints(t *testing.T) {
	client := wire(t)
	reported := map[string]error{}
	history, problems, err := (&Loader{Client: client, Shape: shape()}).Load(t.Context(), all, now())
	require.NoError(t, err)
	for _, p := range problems {
		reported[p.Object] = p.Err
	}
	require.Len(t, history[Owner{"ns", "web"}], 2)
	require.Len(t, reported, 1)
	require.ErrorContains(t, reported["ns/web-b"], "status.cpuHistogram.bucketWeights cannot be read")

	stop := make(chan struct{})
	factory := externalversions.NewSharedInformerFactory(client, 0)
	checkpoints := factory.Autoscaling().V1().VerticalPodAutoscalerCheckpoints()
	require.NoError(t, checkpoints.Informer().SetTransform(Trim))
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	require.Eventually(t, checkpoints.Informer().HasSynced, time.Minute, time.Millisecond)
	cached, err := checkpoints.Lister().List(labels.Everything())
	require.NoError(t, err)
	require.Len(t, cached, 3)
	for _, c := range cached {
		require.Equal(t, 50, c.Status.TotalSamplesCount, "it protects the stored one from a poorer one")
	}
}
