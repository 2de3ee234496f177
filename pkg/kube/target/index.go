package target

import (
	"path"

	"k8s.io/client-go/tools/cache"

	vpav1 "loadline.dev/loadline/apis/autoscaling/v1"
)

// byTarget is the index of VPAs by target.
const byTarget = "target"

// Indexers returns the index of an informer of VPAs that VPAsOf reads.
func Indexers() cache.Indexers {
	return cache.Indexers{byTarget: func(object any) ([]string, error) {
		vpa, ok := object.(*vpav1.VerticalPodAutoscaler)
		if ok && vpa.Spec.TargetRef != nil && CheckRef(vpa.Spec.TargetRef) == nil {
			return []string{RefKey(vpa.Namespace, vpa.Spec.TargetRef).indexed()}, nil
		}
		return nil, nil // not indexed: a path such as ../other would be a key of another namespace
	}}
}

func (k Key) indexed() string { return path.Join(k.Namespace, k.Group, k.Kind, k.Name) }

// VPAsOf returns the VPAs with a target, in no order. The error is a missing index.
func VPAsOf(vpas cache.Indexer, target Key) ([]*vpav1.VerticalPodAutoscaler, error) {
	objects, err := vpas.ByIndex(byTarget, target.indexed())
	found := make([]*vpav1.VerticalPodAutoscaler, 0, len(objects))
	for _, object := range objects {
		if vpa, ok := object.(*vpav1.VerticalPodAutoscaler); ok {
			found = append(found, vpa)
		}
	}
	return found, err
}
