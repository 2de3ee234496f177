// Package convert is the only door between API objects and core values.
//
// Inwards: Amount and Resources read quantities, Pod and NewPod a pod's
// present resources, Recommendation the status of a VPA, Rules its policies,
// Ranges the LimitRanges of a namespace, Boosted and Observed the annotations
// of a pod.
//
// Outwards: Quantity and List print amounts, Format prints a recommendation
// with the rounding a recommender is configured for, Written and Sizes give
// back the number format in which people wrote a value.
//
// It takes no decision and reads nothing but its arguments.
package convert
