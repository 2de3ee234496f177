// Package recipe turns the history of a container into a recommendation.
//
// A Recipe has one Chain of named Steps for each kind and bound. Parse makes it of a
// text such as "loadline:cpu=tracking,margin=0.2"; a Book remembers those that VPAs ask
// for by annotation. For evaluates its chains, and Explain keeps the value after each
// step, so that what is shown is what was computed.
//
// Each recipe is one file that reads like a menu: vpa.go, loadline.go, crane.go,
// attune.go, cruisekube.go and autopilot.go. Their steps are in steps.go and beside it.
// What a recipe knows of the past comes from a profile of package usage and from package
// sketch; it does not know how a number is written or capped.
package recipe
