package build

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const caModulePath = "golang.org/x/crypto/x509roots/fallback"

// caModule returns the certificate module that is linked into this program.
func caModule() (*debug.Module, error) {
	self, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, fmt.Errorf("%s was built without modules: the version of its certificates is unknown", filepath.Base(os.Args[0]))
	}
	for _, d := range self.Deps {
		if d.Path == caModulePath {
			return d, nil
		}
	}
	return nil, fmt.Errorf("module %s with the certificates is not linked into this program", caModulePath)
}

// WriteSBOM writes the SBOM of a binary in SPDX 2.3: the Go modules in its build info, the Go
// standard library, and bundled modules with other files of the image.
func (b *Builder) WriteSBOM(path, name, binary string, bundled ...*debug.Module) error {
	linked, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	sum, err := sumOf(binary)
	if err != nil {
		return err
	}
	if b.Version != "" {
		linked.Main.Version = b.Version
	}
	var text bytes.Buffer
	if err := spdxjson.Write(describe(name, linked, bundled, sum, b.Source), &text, spdxjson.Indent(" ")); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// describe returns the SPDX document of a binary with the given SHA-256 sum.
func describe(name string, linked *debug.BuildInfo, bundled []*debug.Module, sum string, source Source) *v2_3.Document {
	document := &v2_3.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: "https://loadline.dev/spdx/" + name + "-" + sum,
		CreationInfo: &v2_3.CreationInfo{
			Created: source.Time.Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "loadline-hack-images"}},
		},
	}
	main := &v2_3.Package{
		PackageName: linked.Main.Path, PackageVersion: linked.Main.Version, PackageSPDXIdentifier: identifier(linked.Main.Path),
		PackageDownloadLocation: "NOASSERTION", PrimaryPackagePurpose: "APPLICATION",
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: sum}},
	}
	document.Packages = append(document.Packages, main)
	relate := func(from, to common.ElementID, how string) {
		document.Relationships = append(document.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(to)), Relationship: how,
		})
	}
	relate("DOCUMENT", main.PackageSPDXIdentifier, common.TypeRelationshipDescribe)
	add := func(path, version string, how string) {
		p := modulePackage(path, version)
		document.Packages = append(document.Packages, p)
		relate(main.PackageSPDXIdentifier, p.PackageSPDXIdentifier, how)
	}
	add("std", strings.TrimPrefix(linked.GoVersion, "go"), common.TypeRelationshipDependsOn)
	for _, d := range linked.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		add(d.Path, d.Version, common.TypeRelationshipDependsOn)
	}
	for _, d := range bundled {
		add(d.Path, d.Version, common.TypeRelationshipContains)
	}
	return document
}

// modulePackage describes a Go module. The path std is the standard library.
func modulePackage(path, version string) *v2_3.Package {
	return &v2_3.Package{
		PackageName: path, PackageVersion: version, PackageSPDXIdentifier: identifier(path),
		PackageDownloadLocation: "NOASSERTION", PrimaryPackagePurpose: "LIBRARY",
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + path + "@" + version,
		}},
	}
}

// identifier returns the SPDX identifier of a module. SPDX allows letters, digits, dots and dashes.
func identifier(path string) common.ElementID {
	return common.ElementID("Package-" + strings.Map(func(r rune) rune {
		if r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, path))
}
