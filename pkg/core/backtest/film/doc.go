// Package film records a replay for people to look at.
//
// A Film is the witness of one kind. It has a number of frames of equal length,
// each with what was used, requested and recommended in it and the values of every
// step of the recipe, and the events between them: changes and kills.
//
// It measures nothing; package score does.
package film
