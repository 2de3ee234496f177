// Command kubectl-loadline is the plugin for people: kubectl loadline COMMAND.
//
// It calls the same core as the programs in the cluster. The command backtest,
// in the package of that name, needs no cluster at all.
package main
