// Package roster knows which VPAs a recommender serves, and what their targets
// resolve to. Roster reads them from a cache; what is in a VPA is up to others.
package roster
