// Package validate checks VerticalPodAutoscaler objects before they are stored
// and fills in their defaults.
//
// Config.Check takes the raw object, and on an update the old one, and returns
// a Verdict: all errors with the field each is about, warnings for what is
// accepted but deprecated, and the JSON patch of the defaults. Nothing is
// stricter than the reference VPA: other controllers write these objects.
//
// Advise looks around: at HorizontalPodAutoscalers, nodes and other VPAs of the same target,
// of which a person should be warned.
//
// What the schema of the custom resource refuses already (unknown update modes
// of older clients, for example) is checked again here, because the message can
// say what would be right.
package validate
