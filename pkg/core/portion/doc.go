// Package portion goes part of the way from what a container has to what it would
// get.
//
// Of is the one function for that: the updater cuts a resize to the room there is, and
// the webhook a new pod to what quotas leave. How far to go is for them to say.
package portion
