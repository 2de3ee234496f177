// Package peak keeps the highest uses of memory of a container over two weeks, in little
// room, and says what it is taken to need after it was killed for want of memory.
//
// Days is the ring of the peaks, with what is to be told from them: daily peaks, how
// much they differ, how long the container is known, and whether its memory rises day by
// day. Needed is the answer to a kill. Both know no recipe.
package peak
