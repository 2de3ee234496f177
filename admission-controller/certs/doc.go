// Package certs holds the serving certificate of the webhook and the CAs that
// the API server must trust.
//
// There are two sources. Store keeps them in a Secret: whichever replica comes
// first creates it, and before a certificate expires the next one is issued,
// published, and only then used. Files reads mounted files, which somebody else
// renews. Both give a Serving, which is handed to connections through a Holder.
// Keeper repeats that, has the CAs published whenever they changed, and serves a
// certificate only when the API server has had some time to learn of its CA.
//
//	issued            2/3 of its life        + overlap               end
//	|-- serve A, trust A --|-- serve A, trust A+B --|-- serve B, trust A+B --|-- B --
//
// Each certificate has a CA of its own whose key is thrown away at once, so no
// key that could sign anything is ever stored. Issuing and rotating are pure
// functions of the time; Store does the I/O. Registrar publishes the CAs: it writes the
// MutatingWebhookConfiguration, or the bundles of one that somebody else manages.
package certs
