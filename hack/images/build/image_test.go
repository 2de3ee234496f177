package build

import (
	"bytes"
	"encoding/pem"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
)

// Programs that call servers outside of the cluster need public CA certificates.
func TestAuthorities_ContainPublicCAs(t *testing.T) {
	n := 0
	for rest := caCertificates(); len(rest) > 0; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		require.NotNil(t, block)
	}
	require.Greater(t, n, 100)
}

func TestSize_CountsUncompressedBytes(t *testing.T) {
	image, err := newImage("recommender", bytes.Repeat([]byte{1}, maxImageBytes), &v1.Platform{OS: "linux", Architecture: "amd64"}, Source{Time: time.Unix(0, 0)})
	require.NoError(t, err)
	n, err := size(image)
	require.NoError(t, err)
	require.Greater(t, n, int64(maxImageBytes))
}
