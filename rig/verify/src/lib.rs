//! The oracle: pure and deterministic.
//!
//! [`inspect`] reads one [`Observation`](plugpull_model::observation::Observation) once and keeps only
//! what a judgement needs; the result is what may be cached for a crash image. [`judge`] then holds one
//! [`Inspection`] against the ledger at one cut, and is called for every (image, cut). Neither has a
//! clock, I/O, or an order that differs from run to run: the same input gives the same answer.
//!
//! The oracle shares only the on-disk formats with the generator. It parses the raw bytes of every
//! object itself, so that a bug in the workload's own recovery cannot hide a loss, and then judges what
//! that recovery gave back as well.
//!
//! # The append-log
//!
//! | fate of a record | when | what breaches it |
//! |---|---|---|
//! | required | acknowledged at a position up to the cut | anything but the whole record |
//! | permitted | issued up to the cut, and not required; a failed operation stays here for ever | nothing |
//! | forbidden | not issued up to the cut | the whole record, if the ledger is complete to the cut |
//!
//! A version of a record that the plan never issues is forbidden whatever the ledger says.
//!
//! | a required record's place holds | kind |
//! |---|---|
//! | zeros, an end of file before or inside it, or there is no such file | `lost` |
//! | blocks of the record and of something else | `torn` |
//! | a mix inside one logical block | `shorn` |
//! | wrong bytes | `corrupt` |
//! | a whole older version | `stale` |
//! | a whole version that was not issued | `unexpected` |
//! | another record of this run | `misdirected` |
//! | nothing of this run | `foreign` |
//! | bytes that cannot all be read | `unreadable` |
//! | the whole record, and the workload's recovery does not give it back | `lost` |
//!
//! Further breaches:
//!
//! * A record that is not required, is not whole, and is given back by the workload's recovery all the
//!   same is `corrupt`. One that the plan cannot issue at all is `unexpected`.
//! * `unserializable`, under [`Order::Prefix`](plugpull_model::scenario::Order) only: see
//!   [`judge`](judge()).
//! * A file that is gone, although none of its records is required yet, is `lost` without a record:
//!   it exists and its directory is synced before record 0.
//! * An image that does not recover is one `unmountable` or one `hang`, and none of its records is
//!   judged. Lines of the kernel log that report a fault are one `kernel-fault`.
//! * Damage that the checker finds is `metadata`. A second look that fails is `unmountable` when no
//!   object could be read after it, else `metadata`.
//!
//! The append-log cannot produce `partial-transaction` (it has none) nor `dead-device` (a crash image
//! is a new device), and `stale` only in name: it writes every address once.

mod fate;
mod inspect;
mod judge;
mod ledger;
mod look;
mod record;
mod words;

pub use inspect::{Inspection, inspect};
pub use judge::judge;
pub use ledger::{LedgerMisfit, check_ledger};
