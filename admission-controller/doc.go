// Command admission-controller gives new pods the resources their VPA
// recommends, and checks VPA objects before they are stored.
//
// main parses the flags of Config; run builds every part and waits; beater
// proves that the webhook answers and says so in the heartbeat Lease. The parts live in the folders
// beside this file: server speaks HTTPS, lookup finds the VPA of a pod, mutate
// and validate decide, certs and register make the API server trust us.
//
// A pod is never refused: whatever fails, it starts with what it asked for.
package main
