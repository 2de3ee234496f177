package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/stretchr/testify/require"

	"loadline.dev/loadline/hack/images/build"
)

// checkImages requires that each image runs as user nobody, starts its program, and contains only
// that, the CA certificates and the user names.
func checkImages(t *testing.T, folder string) {
	t.Helper()
	for _, program := range build.Daemons {
		prefix := filepath.Join(folder, "loadline-"+program)
		image, err := tarball.ImageFromPath(prefix+"-linux-"+runtime.GOARCH+".tar", nil)
		require.NoError(t, err)
		inside := packed(t, image)
		require.ElementsMatch(t, []string{program, "etc/passwd", "etc/group", "etc/ssl/certs/ca-certificates.crt"}, slices.Collect(maps.Keys(inside)))
		require.True(t, bytes.Contains(inside[program], []byte("Antarctica/DumontDUrville")), "%s knows no time zones, and nothing else in the image does: schedules of policies would never open", program)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, []string{"/" + program}, config.Config.Entrypoint)
		require.Equal(t, "65534:65534", config.Config.User)
		require.Equal(t, runtime.GOARCH, config.Architecture)

		index, err := layout.ImageIndexFromPath(prefix)
		require.NoError(t, err)
		top, err := index.IndexManifest()
		require.NoError(t, err)
		require.Equal(t, "v1.2.3", top.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
		platforms, err := index.ImageIndex(top.Manifests[0].Digest)
		require.NoError(t, err)
		one, err := platforms.IndexManifest()
		require.NoError(t, err)
		require.Equal(t, "linux/"+runtime.GOARCH, one.Manifests[0].Platform.String())
		digest, err := image.ConfigName() // archives have another layer list
		require.NoError(t, err)
		indexed, err := platforms.Image(one.Manifests[0].Digest)
		require.NoError(t, err)
		same, err := indexed.ConfigName()
		require.NoError(t, err)
		require.Equal(t, same, digest)

		text, err := os.ReadFile(prefix + "-linux-" + runtime.GOARCH + ".spdx.json")
		require.NoError(t, err)
		var parts v2_3.Document
		require.NoError(t, json.Unmarshal(text, &parts))
		require.Equal(t, "v1.2.3", parts.Packages[0].PackageVersion)
		var names []string
		for _, p := range parts.Packages {
			require.NotEmpty(t, p.PackageVersion, p.PackageName)
			names = append(names, p.PackageName)
		}
		require.Subset(t, names, []string{"loadline.dev/loadline", "std", "k8s.io/client-go", "golang.org/x/crypto/x509roots/fallback"})
	}
}

func packed(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		require.NoError(t, err)
		for files := tar.NewReader(content); ; {
			header, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			all[header.Name], err = io.ReadAll(files)
			require.NoError(t, err)
		}
		require.NoError(t, content.Close())
	}
	return all
}
