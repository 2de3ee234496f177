package build

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

// writeImages writes images for two platforms to a folder, in the layout of Images.
func writeImages(t *testing.T) string {
	t.Helper()
	platforms, err := ParsePlatforms("linux/amd64,linux/arm64")
	require.NoError(t, err)
	to, err := Destinations("registry.example/team", "v1")
	require.NoError(t, err)
	out := t.TempDir()
	for _, program := range Daemons {
		var index v1.ImageIndex = empty.Index
		for _, platform := range platforms {
			image, err := newImage(program, []byte(program+platform.String()), platform, Source{Revision: "abc", Time: time.Unix(1, 0)})
			require.NoError(t, err)
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
		}
		require.NoError(t, writeLayout(out, program, to[program], index))
	}
	return out
}

func TestPush_CopiesImagesToRegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://") + "/team"
	to, err := Destinations(at, "v1")
	require.NoError(t, err)
	folder := writeImages(t)
	pushed, err := Push(t.Context(), folder, to)
	require.NoError(t, err)
	for _, program := range Daemons {
		require.Equal(t, at+"/loadline-"+program+":v1", to[program].String())
		index, err := remote.Index(to[program])
		require.NoError(t, err)
		digest, err := index.Digest()
		require.NoError(t, err)
		require.Equal(t, digest, pushed[program])
		manifest, err := index.IndexManifest()
		require.NoError(t, err)
		require.Len(t, manifest.Manifests, 2)
		for _, m := range manifest.Manifests {
			image, err := index.Image(m.Digest)
			require.NoError(t, err)
			config, err := image.ConfigFile()
			require.NoError(t, err)
			require.Equal(t, m.Platform.Architecture, config.Architecture)
			require.Equal(t, []string{"/" + program}, config.Config.Entrypoint)
		}
	}
	require.Contains(t, Kustomization("../../deploy", to, pushed), `
resources:
  - ../../deploy
images:
  - name: loadline-recommender # v1
    newName: `+at+`/loadline-recommender
    digest: `+pushed["recommender"].String()+"\n")
}

func TestPush_ReportsRegistryError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not yours", http.StatusForbidden) }))
	defer server.Close()
	to, err := Destinations(strings.TrimPrefix(server.URL, "http://"), "v1")
	require.NoError(t, err)
	_, err = Push(t.Context(), writeImages(t), to)
	require.ErrorContains(t, err, "copy the image of recommender to "+to["recommender"].String()+": ")
	require.ErrorContains(t, err, "403")
}

func TestDestinations_RejectsInvalidRegistry(t *testing.T) {
	for _, place := range []string{"team", "https://registry.example/team", "registry.example/Team"} {
		_, err := Destinations(place, "v1")
		require.ErrorContains(t, err, "want a registry and an image path, such as registry.example/team", place)
	}
}
