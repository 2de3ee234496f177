package compat

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	strictyaml "sigs.k8s.io/yaml"
)

const ourManifests = "../../deploy"

// Tools find pods and services by labels, and the selector of a Deployment is immutable.
func TestManifests_KeepUpstreamLabelsAndSelectors(t *testing.T) {
	upstream, ours := manifests(t, filepath.Join(upstreamFolder(t), "deploy")), manifests(t, ourManifests)
	for _, name := range slices.Sorted(maps.Keys(upstream)) {
		got, found := ours[name]
		if !found {
			continue // RBAC is structured differently
		}
		for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
			have := labelsAt(t, got, path...)
			for key, value := range labelsAt(t, upstream[name], path...) {
				require.Equal(t, value, have[key], "%s: label %s in %s", name, key, strings.Join(path, "."))
			}
		}
		require.Equal(t, selector(t, upstream[name]), selector(t, got), "%s: selector", name)
		delete(upstream, name)
	}
	for _, name := range slices.Sorted(maps.Keys(upstream)) {
		require.False(t, strings.HasPrefix(name, "Deployment/") || strings.HasPrefix(name, "Service/"), "ours has no %s", name)
	}
}

func TestManifests_SelectorsMatchOneProgram(t *testing.T) {
	ours := manifests(t, ourManifests)
	pods := map[string]labels.Set{}
	for name, object := range ours {
		if object.GetKind() == "Deployment" {
			pods[name] = labelsAt(t, object, "spec", "template", "metadata", "labels")
		}
	}
	require.Len(t, pods, 3)
	for name, object := range ours {
		wanted := selector(t, object)
		if len(wanted) == 0 {
			continue
		}
		var matched []string
		for deployment, set := range pods {
			if labels.SelectorFromSet(wanted).Matches(set) {
				matched = append(matched, deployment)
			}
		}
		require.Len(t, matched, 1, name)
		require.True(t, object.GetKind() != "Deployment" || matched[0] == name, name)
	}
}

// manifests returns the objects that kubectl apply -k creates from a folder, by kind and name.
func manifests(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	require.NoError(t, err)
	var kustomization struct{ Resources []string }
	require.NoError(t, strictyaml.Unmarshal(content, &kustomization), folder)
	found := map[string]*unstructured.Unstructured{}
	for _, resource := range kustomization.Resources {
		path := filepath.Join(folder, resource)
		if filepath.Ext(path) != ".yaml" {
			maps.Copy(found, manifests(t, path))
			continue
		}
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, document := range bytes.Split(content, []byte("\n---\n")) {
			object := &unstructured.Unstructured{}
			require.NoError(t, strictyaml.Unmarshal(document, &object.Object), path)
			if object.GetKind() != "" {
				found[object.GetKind()+"/"+object.GetName()] = object
			}
		}
	}
	require.NotEmpty(t, found, folder)
	return found
}

func labelsAt(t *testing.T, object *unstructured.Unstructured, path ...string) labels.Set {
	t.Helper()
	set, _, err := unstructured.NestedStringMap(object.Object, path...)
	require.NoError(t, err)
	return set
}

func selector(t *testing.T, object *unstructured.Unstructured) labels.Set {
	t.Helper()
	if object.GetKind() == "Service" {
		return labelsAt(t, object, "spec", "selector")
	}
	return labelsAt(t, object, "spec", "selector", "matchLabels")
}
