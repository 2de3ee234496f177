// Package week keeps the use of a container over the last days in the ways that
// some recipes ask for: Points the use in each five minutes, Hours the highest use
// in each hour, Weighted histograms of whole days in which a sample weighs what it
// is.
//
// Each is filled by samples as they come, can be merged with another, and has a form
// on disk that gives back exactly what it was. Points and Weighted take some
// kilobytes, Hours half of one.
package week
