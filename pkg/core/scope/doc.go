// Package scope says which pods a ResourceQuota counts.
//
// Rules are the scopes of a quota, Traits what they ask of a pod. Covers is the one
// answer for the updater, which looks whether a change fits, and for the webhook,
// which cuts new pods to what quotas leave.
//
// It knows pods that have requests, or are about to get them, and no others: those
// are never of class BestEffort.
package scope
