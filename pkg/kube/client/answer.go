package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// maxCause is how many bytes of the body of a failed request an error quotes.
const maxCause = 500

// Body returns the body of an answer. The error of a failed request has the reason that the server gives:
// the client library drops it from raw answers.
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

// plain returns the beginning of a body as one line of text.
func plain(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), maxCause)]), "")
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
}
