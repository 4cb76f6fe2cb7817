//! What one crash image looked like after the stack's whole recovery.

use serde::{Deserialize, Serialize};

use crate::seams::Recovered;

/// How the recovery procedure ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryOutcome {
    /// The stack is in use again; a raw stack needs nothing.
    Recovered,
    /// The kernel would not mount it.
    MountFailed {
        /// The error number.
        errno: i32,
    },
    /// A step before the mount gave up.
    StepFailed {
        /// The step's words.
        step: String,
        /// Its exit code, or none when a signal ended it.
        code: Option<i32>,
        /// What it printed, bounded.
        output: String,
    },
    /// It did not end in time and was freed by force.
    Hung,
}

/// What was read of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedContent {
    /// No such file.
    Missing,
    /// Its bytes, from offset 0.
    Bytes(Vec<u8>),
    /// Reading failed at this byte offset; what was read before it is kept.
    Unreadable {
        /// The bytes before the failure.
        before: Vec<u8>,
        /// The error number.
        errno: i32,
    },
}

/// One object of the workload: a log file, or the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// Its name in the plan.
    pub name: String,
    /// What was read.
    pub content: ObservedContent,
}

/// What the file system's own checker said after recovery and clean unmount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckerOutcome {
    /// The command.
    pub command: String,
    /// Its exit code, or none when a signal ended it.
    pub code: Option<i32>,
    /// Whether it found damage.
    pub damage: bool,
    /// What it printed, bounded.
    pub output: String,
}

/// The second look: the recovered stack was filled, files were created and
/// deleted, it was remounted, and read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UseAfterRecovery {
    /// The workload's objects after that.
    pub objects: Vec<ObservedObject>,
    /// The file system's checker after clean unmount.
    pub checker: Option<CheckerOutcome>,
    /// Anything in it that failed, in words: a mount, a write, a delete.
    pub failed: Option<String>,
}

/// Everything seen of one crash image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// How recovery ended.
    pub recovery: RecoveryOutcome,
    /// What the kernel said: the mount descriptor's messages, then the kernel
    /// log of this device. Bounded.
    pub messages: Vec<String>,
    /// Oops, WARN, forced read-only: lines of the kernel log that say so.
    pub kernel_faults: Vec<String>,
    /// The workload's objects right after recovery.
    pub objects: Vec<ObservedObject>,
    /// What the workload's own recovery gave back.
    pub recovered: Recovered,
    /// The second look, when this image had one.
    pub used: Option<UseAfterRecovery>,
}
