//! Turns a plan into operations on one stack; the engines' own recovery.
//!
//! | to | call |
//! |---|---|
//! | create the log files before `base` | [`prepare_files`] |
//! | write every record and learn what was acknowledged | [`run_files`], [`run_device`] |
//! | keep that outside the power domain that is cut | [`SharedLedger`], [`LedgerFile`], [`read_ledger`] |
//! | see what is there after a cut | [`read_files`], [`read_device`] |
//! | do what the log would do when it starts again | [`recover()`] |
//! | use the recovered file system once more | [`use_files`] |
//!
//! Everything on a file system starts at a directory descriptor and names plain files under it, so
//! it works on a mount that has no path. The descriptor may be one that only names the mount
//! (`O_PATH`, as `fsmount(2)` returns it).
//!
//! # What counts as acknowledged
//!
//! A record is acknowledged when the call that the plan names returned success, and never
//! otherwise. A write or sync that fails, for whatever reason (`EINTR` too), acknowledges nothing,
//! and *its writer stops*: on Linux a sync that follows a failed one may succeed although the data
//! is gone, so a later success says nothing about the same data. Other writers go on, each with its
//! own file. On a device they share the cache, so a flush that fails also fails every record that
//! was in flight with it.

mod aligned;
mod clock;
mod device;
mod engine;
mod error;
mod files;
mod histogram;
mod layout;
mod ledger_file;
mod observe;
mod recover;
mod shared_ledger;
mod use_after;

pub use clock::monotonic_ns;
pub use device::run_device;
pub use engine::WorkloadSummary;
pub use error::{GeneratorError, ReadLedgerError};
pub use files::{prepare_files, run_files};
pub use histogram::LatencyHistogram;
pub use ledger_file::{LedgerFile, read_ledger};
pub use observe::{read_device, read_files};
pub use recover::recover;
pub use shared_ledger::SharedLedger;
pub use use_after::{UseSummary, use_files};
