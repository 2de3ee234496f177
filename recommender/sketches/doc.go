// Package sketches keeps what recipes want to know of the past beside histories: for
// each VPA and container a sketch, which live samples, history and checkpoints fill.
//
// Keeper gives each VPA its recipe and fills the sketches; where no recipe needs any,
// it does nothing. A sketch belongs to the VPA, not to pods, so rollouts add none.
// When a VPA changes its recipe, what both recipes need stays, and what only the former
// one needed goes. Where the new one needs nothing all stays for a day, lest somebody
// who tries it loses what there was.
//
// It makes no recommendation and writes nothing; packages advice and upkeep do.
package sketches
