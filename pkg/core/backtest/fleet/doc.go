// Package fleet puts the scores of many containers together.
//
// Summarise makes a row of figures for each candidate, kind and class, with
// intervals; Front says which candidates are worse than another one in every
// way; Cost is one number for a regression gate, and Gate compares two of them.
//
// What is drawn to get an interval are containers, not samples, and the draws
// are the same for all candidates and every run: Seed starts them. A fleet
// average hides the class that hurts, so every class has rows of its own.
package fleet
