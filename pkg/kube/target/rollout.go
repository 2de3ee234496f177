package target

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Rolling tells whether a rollout of a workload is under way. One that is paused,
// that has missed its deadline, or that waits for people to delete pods is not.
// Of other workloads than Deployments, StatefulSets and DaemonSets it is not known.
func (r *Resolver) Rolling(key Key) bool {
	if !key.wellKnown() {
		return false
	}
	w, err := r.caches.lookup(key)
	return err == nil && w.rolling
}

func deploymentRolls(d *appsv1.Deployment) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return false
		}
	}
	return !d.Spec.Paused && (d.Status.ObservedGeneration < d.Generation || d.Status.Replicas > d.Status.UpdatedReplicas)
}

func setRolls(s *appsv1.StatefulSet) bool {
	if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return false
	}
	wanted := s.Status.Replicas
	if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		wanted -= *u.Partition
	}
	return s.Status.ObservedGeneration < s.Generation ||
		s.Status.CurrentRevision != s.Status.UpdateRevision && s.Status.UpdatedReplicas < wanted
}

func daemonsRoll(d *appsv1.DaemonSet) bool {
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return false
	}
	return d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedNumberScheduled < d.Status.CurrentNumberScheduled
}
