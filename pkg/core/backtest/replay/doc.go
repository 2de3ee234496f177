// Package replay lets a container live through its recording with the sizes that
// somebody recommends.
//
// Run takes a tape.Recording, a Setup (limits, restarts, update policy), an
// Advisor (who recommends) and a Witness (who is told everything that happens).
// In each step the sizes in force meet the recorded use, the witness is told,
// the Advisor sees what a real node would have shown of it, and then the policy
// package and the updater's own planner decide about a change. An Advisor never
// sees the recorded future, nor what a limit hid.
//
// It counts nothing; package score does.
package replay
