// Package trail keeps what recipes want to know of a container's past that the
// histograms of a profile do not tell, in little room.
//
// Peaks is a ring of the highest memory use in windows of six hours, Load a pair
// of CPU histograms that forget at different speeds, Points the use in each five
// minutes of a week, Hours the highest use in each hour of it, Weighted a week of
// histograms in which a sample weighs what it is. A Trail holds those that a
// recipe needs.
//
// All of it is filled by samples and kills as they come, and knows no recipe.
package trail
