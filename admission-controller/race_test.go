//go:build race

package main

func init() { slowdown = 10 }
