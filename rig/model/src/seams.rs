//! The seams between packages, as traits and plain data without I/O of their own.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Serialize};

use crate::ledger::{LedgerLine, OperationId};
use crate::units::{ByteOffset, Position};

/// A block device as a workload without a file system sees it.
pub trait Device: Sync {
    /// Its size.
    fn size_bytes(&self) -> u64;
    /// Reads exactly `out.len()` bytes.
    ///
    /// # Errors
    /// The device's error.
    fn read(&self, at: ByteOffset, out: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data`; with `fua` it is durable when the call returns.
    ///
    /// # Errors
    /// The device's error.
    fn write(&self, at: ByteOffset, data: &[u8], fua: bool) -> io::Result<()>;
    /// Makes every write completed before the call durable.
    ///
    /// # Errors
    /// The device's error.
    fn flush(&self) -> io::Result<()>;
    /// Gives blocks back.
    ///
    /// # Errors
    /// The device's error.
    fn discard(&self, at: ByteOffset, length_bytes: u64) -> io::Result<()>;
}

/// Tells how far the drive's recording has come, without asking the drive: a
/// read of shared memory.
pub trait PositionSource: Sync {
    /// The number of events counted so far.
    fn position(&self) -> Position;
}

/// Takes the ledger's lines as they happen, from many writers.
pub trait AckSink: Sync {
    /// Takes one line.
    ///
    /// # Errors
    /// When the line cannot be kept: the workload must stop.
    fn record(&self, line: LedgerLine) -> io::Result<()>;
}

/// What the workload's own recovery says is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The records it gave back.
    pub records: BTreeSet<OperationId>,
    /// Why it stopped where it did, for people.
    pub notes: Vec<String>,
}
