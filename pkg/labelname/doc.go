// Package labelname knows how exporters of metrics rename the labels of pods, which may
// hold what names of Prometheus may not.
//
// Fold does it as kube-state-metrics does. Several labels can become one.
package labelname
