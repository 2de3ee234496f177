// Package capacity reads what the nodes of a cluster and its ResourceQuotas have
// left.
//
// Reader.Room counts every pod that its caches hold, also those that no VPA
// controls. Where nodes or quotas cannot be listed, nothing is known of them, and
// everything fits.
package capacity
