// Package trail keeps what recipes want to know of a container's past that the
// histograms of a profile do not tell, in little room.
//
// A Trail holds the parts that a recipe needs: package peak has the highest memory
// use in windows of six hours, Kills are the last kills; package load has histograms
// that forget, package week the use of the last days. Pressed is there only where
// somebody knows how long CPU work waited. Headroom is no use, but what the last pods
// were declared with: it is here because it must outlive them, and a restart.
//
// All of it is filled by samples and kills as they come, and knows no recipe. Two
// trails can be merged, Adapt makes a trail serve another recipe, and Image is its
// form on disk: Read makes the same trail of it, to the bit.
package trail
