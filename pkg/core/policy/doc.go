// Package policy turns a recommendation into what one pod may really get.
//
// Cap is the recommender's last step: it keeps bounds inside the minimum and
// maximum of a container's Rule. Fit answers "what would this pod get": it
// moves the recommendation into the LimitRanges of the namespace and the rules
// of the VPA and keeps the proportion of limits to requests. The webhook, the
// updater, the plugin and the backtester all call it, so they cannot disagree.
// Rule.Boosted adds the startup boost to what Fit returned, and JudgeBoost says when it ends.
//
// Results hold only what is to be written: a kind that is absent stays as the
// pod has it. Every cut or raise is told by a Note.
//
// It does not choose the VPA of a pod (package target), knows no API
// objects (package convert) and never looks at nodes or quotas.
package policy
