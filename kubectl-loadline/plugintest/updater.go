package plugintest

import (
	"context"
	"io"
	"strings"

	"loadline.dev/loadline/pkg/core/resources"
	"loadline.dev/loadline/pkg/core/usage"
)

// ProxyUsage is the usage of the pod of the DaemonSet without a VPA.
func ProxyUsage() []usage.Sample {
	key := usage.ContainerKey{Namespace: "kube-system", Pod: "proxy-a", Container: "a"}
	var all []usage.Sample
	for i := range 100 {
		at := Before(5 * (100 - i))
		all = append(all, usage.Sample{Container: key, Kind: resources.CPU, At: at, Amount: resources.Amount(100 + 5*i)},
			usage.Sample{Container: key, Kind: resources.Memory, At: at, Amount: resources.Amount(300+i) << 20})
	}
	return all
}

// Response is a response of a proxied request. It fails with Err, if that is not nil.
type Response struct {
	Text string
	Err  error
}

// DoRaw returns the text.
func (r Response) DoRaw(context.Context) ([]byte, error) { return []byte(r.Text), r.Err }

// Stream returns the text.
func (r Response) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(r.Text)), r.Err
}
