// Package cookbook has all recipes by name, and reads their settings.
//
// Parse makes a recipe of a text such as "loadline:cpu=tracking,margin=0.2". Each
// recipe is one file that reads like a menu: lists of the steps that steps.go, its
// own file or package estimate has.
//
// It adds no numbers of its own: what a recipe knows of the past comes from a
// profile or from package sketch.
package cookbook
