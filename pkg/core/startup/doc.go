// Package startup says when the extra CPU that containers get while they start
// is over, and what they get then.
//
// Judge takes a Pod whose containers were boosted when it was created, with the
// resources that they had been written with, and what its VPA recommends now. A
// container whose boost is over goes to what is recommended; CPU that nobody
// recommends goes back to what was written.
//
// It does not compute boosts, which policy.Rule does, and changes nothing.
package startup
