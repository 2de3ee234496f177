// Package ingredient has the steps that recipes are made of, besides those of
// package estimate.
//
// A step is a name and a function, made from numbers; what it needs to know of a
// container it finds in the subject's sketch. loadline.go has those of our own
// recipe, week.go and shape.go those about a week of use and machine sizes,
// habits.go those about hours of the day, steps.go plain arithmetic.
//
// It puts no steps together; package cookbook does.
package ingredient
