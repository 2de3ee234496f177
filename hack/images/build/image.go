package build

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageUser = "65534:65534"
	// maxImageBytes is the maximum unpacked size of an image.
	maxImageBytes = 40_000_000
)

// Images writes the images of all daemons into a folder: for each daemon an image layout with all
// platforms, and for each platform an archive and an SBOM.
func (b *Builder) Images(out, tag string, platforms []*v1.Platform) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, program := range Daemons {
		ref, err := name.NewTag("loadline-" + program + ":" + tag)
		if err != nil {
			return fmt.Errorf("-tag: %w", err)
		}
		if err := b.index(out, program, ref, platforms); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) index(out, program string, ref name.Tag, platforms []*v1.Platform) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		image, err := b.image(out, program, ref, platform)
		if err != nil {
			return fmt.Errorf("image of %s for %s: %w", program, platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return writeLayout(out, program, ref, index)
}

// writeLayout writes the image layout of a program, which Push reads.
func writeLayout(out, program string, ref name.Tag, index v1.ImageIndex) error {
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": ref.TagStr()}},
	})
	_, err := layout.Write(filepath.Join(out, "loadline-"+program), named)
	return err
}

// image builds the image for one platform, and writes its archive and its SBOM.
func (b *Builder) image(out, program string, ref name.Tag, platform *v1.Platform) (v1.Image, error) {
	binary, err := b.Binary(program, platform)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	image, err := newImage(program, content, platform, b.Source)
	if err != nil {
		return nil, err
	}
	prefix := filepath.Join(out, "loadline-"+program+"-"+PlatformSuffix(platform))
	certificates, err := caModule()
	if err != nil {
		return nil, err
	}
	if err := b.WriteSBOM(prefix+".spdx.json", "loadline-"+program, binary, certificates); err != nil {
		return nil, err
	}
	if err := tarball.WriteToFile(prefix+".tar", ref, image); err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	unpacked, err := size(image)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(b.Log, "images: %s %s: %d bytes, %s\n", ref, platform, unpacked, digest)
	if unpacked > maxImageBytes {
		return nil, fmt.Errorf("image has %d bytes, more than the maximum of %d", unpacked, maxImageBytes)
	}
	return image, nil
}

func size(image v1.Image) (bytes int64, err error) {
	layers, err := image.Layers()
	if err != nil {
		return 0, err
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return 0, err
		}
		n, err := io.Copy(io.Discard, content)
		if err := content.Close(); err != nil {
			return 0, err
		}
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// files returns the files of an image. Programs have the same paths as in upstream images.
func files(program string, binary []byte) []File {
	return []File{
		{program, 0o755, binary},
		{"etc/group", 0o644, []byte("root:x:0:\nnobody:x:65534:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n")},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, caCertificates()},
	}
}

// caCertificates returns the certificates of public authorities, for metrics servers outside the
// cluster. It skips authorities with constraints, because a certificate file cannot express them.
func caCertificates() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return all.Bytes()
}

func newImage(program string, binary []byte, platform *v1.Platform, source Source) (v1.Image, error) {
	packed, err := pack(files(program, binary), source.Time)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil },
		tarball.WithCompressedCaching, tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:     layer,
		MediaType: types.OCILayer,
		History:   v1.History{Created: v1.Time{Time: source.Time}, CreatedBy: "hack/images"},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant, config.Created = platform.OS, platform.Architecture, platform.Variant, v1.Time{Time: source.Time}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + program},
		User:       imageUser,
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "loadline-" + program,
			"org.opencontainers.image.revision": source.Revision,
			"org.opencontainers.image.created":  source.Time.Format(time.RFC3339),
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}
