package build

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Destinations returns the image references by daemon, below a path in a registry such as
// registry.example/team.
func Destinations(registry, tag string) (map[string]name.Tag, error) {
	const wanted = "want a registry and an image path, such as registry.example/team"
	if strings.Contains(registry, "://") {
		return nil, fmt.Errorf("%q: %s", registry, wanted)
	}
	all := map[string]name.Tag{}
	for _, program := range Daemons {
		ref, err := name.NewTag(registry+"/loadline-"+program+":"+tag, name.StrictValidation)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, wanted)
		}
		all[program] = ref
	}
	return all, nil
}

// Push copies the images that Images wrote into a folder, with all platforms, and returns the
// digests by daemon. It uses the credentials of `docker login` and similar tools from the home
// directory.
func Push(ctx context.Context, folder string, to map[string]name.Tag) (map[string]v1.Hash, error) {
	pushed := map[string]v1.Hash{}
	for _, program := range Daemons {
		written, err := layout.ImageIndexFromPath(filepath.Join(folder, "loadline-"+program))
		if err != nil {
			return nil, err
		}
		named, err := written.IndexManifest()
		if err != nil {
			return nil, err
		}
		pushed[program] = named.Manifests[0].Digest
		platforms, err := written.ImageIndex(pushed[program])
		if err != nil {
			return nil, err
		}
		if err := remote.WriteIndex(to[program], platforms, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx)); err != nil {
			return nil, fmt.Errorf("copy the image of %s to %s: %w", program, to[program], err)
		}
	}
	return pushed, nil
}

// Kustomization returns a kustomization of a folder with pushed images. It pins the images by
// digest.
func Kustomization(folder string, to map[string]name.Tag, pushed map[string]v1.Hash) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# kubectl apply -k
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - %s
images:
`, folder)
	for _, program := range Daemons {
		fmt.Fprintf(&b, "  - name: loadline-%s # %s\n    newName: %s\n    digest: %s\n", program, to[program].TagStr(), to[program].Context(), pushed[program])
	}
	return b.String()
}
