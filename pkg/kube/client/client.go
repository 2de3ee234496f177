// Package client connects a program to the API server and bounds its caches.
//
// New builds Clients, and Clients.WaitForServer checks that the API server responds. Factory and
// VPAFactory build informer factories that store trimmed objects: a cluster has many pods, and the
// programs read few of their fields, see Trim. NodeAutoscaler detects whether nodes are added on
// demand.
//
// The package retries only at start, because client-go's reflectors retry by themselves.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"loadline.dev/loadline/pkg/generated/clientset/versioned"
)

// Clients are clients of the API server, each with its own rate limit.
type Clients struct {
	Kube kubernetes.Interface
	VPA  versioned.Interface

	host string
}

// New builds the clients. Protobuf for core objects costs a fraction of JSON on both sides.
func New(config *rest.Config) (*Clients, error) {
	config = Bounded(config)
	core := rest.CopyConfig(config)
	core.ContentType = runtime.ContentTypeProtobuf
	core.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err := newGroups(core)
	if err != nil {
		return nil, fmt.Errorf("build the client for %s: %w", config.Host, err)
	}
	vpa, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build the VPA client for %s: %w", config.Host, err)
	}
	return &Clients{Kube: kube, VPA: vpa, host: config.Host}, nil
}

const (
	pingTimeout = 5 * time.Second
	pingPause   = 2 * time.Second
)

// WaitForServer waits for the API server and logs its first failure. It fails after atMost.
func (c *Clients) WaitForServer(ctx context.Context, atMost time.Duration) error {
	var silent error // error of the last ping, nil before the first failure
	ended := wait.PollUntilContextTimeout(ctx, pingPause, atMost, true, func(context.Context) (bool, error) {
		err := c.ping(ctx)
		if err != nil && silent == nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "API server does not answer, retrying", "server", c.host, "for", atMost)
		}
		silent = err
		return err == nil, nil
	})
	if ended != nil && ctx.Err() == nil {
		return fmt.Errorf("API server %s did not answer for %s: %w", c.host, atMost, silent)
	}
	return ended
}

func (c *Clients) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return c.Kube.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
}

// Raw returns a client of v1beta1 of an API group with its own rate limit. Callers parse responses.
func Raw(config *rest.Config, group string) (*rest.RESTClient, error) {
	own := Bounded(config)
	own.APIPath = "/apis"
	own.GroupVersion = &schema.GroupVersion{Group: group, Version: "v1beta1"}
	own.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("build the client of %s for %s: %w", group, config.Host, err)
	}
	return client, nil
}

// maxCause is the maximum length of a quoted response body in an error, in bytes.
const maxCause = 500

// Body returns the body of a response. Errors include the reason, which raw responses lack.
func Body(answer rest.Result) ([]byte, error) {
	body, err := answer.Raw()
	var failed apierrors.APIStatus
	if err == nil || len(body) == 0 || !errors.As(err, &failed) {
		return body, err
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Status == metav1.StatusFailure && status.Message != "" {
		if status.Code == 0 {
			status.Code = failed.Status().Code
		}
		if status.Reason == "" {
			status.Reason = failed.Status().Reason
		}
		return nil, &apierrors.StatusError{ErrStatus: status}
	}
	if text := plain(body); text != "" && !strings.Contains(err.Error(), text) {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return nil, err
}

func plain(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), maxCause)]), "")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
}
