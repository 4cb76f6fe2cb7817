//! Framing and ledger transport over any Read + Write.
