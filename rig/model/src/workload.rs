//! What is written, and what counts as its acknowledgement.

use serde::{Deserialize, Serialize};

use crate::units::{ByteOffset, Sequence, Size, StreamId};

/// The call whose return acknowledges a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acknowledge {
    /// `write` then `fsync`.
    Fsync,
    /// `write` then `fdatasync`.
    Fdatasync,
    /// `write` on a descriptor opened with `O_SYNC`.
    OSync,
    /// `write` on a descriptor opened with `O_DSYNC`.
    ODsync,
    /// Raw stacks: WRITE, then FLUSH.
    Flush,
    /// Raw stacks: WRITE with FUA.
    Fua,
    /// The return of the write alone. Promises nothing; for controls.
    None,
}

/// How the log file comes to its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFile {
    /// Each record extends the file.
    #[default]
    Growing,
    /// The file has its full length, written with zeros and synced, before record 0.
    Preallocated,
}

/// The append-log: each writer appends fixed-size records to its own log and
/// acknowledges each before it writes the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendLog {
    /// Records that each writer appends.
    pub records_per_writer: u32,
    /// Length of one record. Default 4096.
    #[serde(default = "default_record_bytes")]
    pub record_bytes: Size,
    /// Concurrent writers, each with its own file. Default 1.
    #[serde(default = "default_writers")]
    pub writers: u32,
    /// Growing or preallocated.
    #[serde(default)]
    pub file: LogFile,
    /// The acknowledging call on file system stacks. Default `fdatasync`.
    #[serde(default = "default_acknowledge")]
    pub acknowledge: Acknowledge,
    /// Open the files with `O_DIRECT`.
    #[serde(default)]
    pub direct: bool,
    /// Pause between a writer's records, in microseconds.
    #[serde(default)]
    pub pause_us: u32,
    /// The recording lasts at least this long: pauses are stretched to fit.
    #[serde(default)]
    pub minimum_ms: u32,
}

fn default_record_bytes() -> Size {
    Size(4096)
}
fn default_writers() -> u32 {
    1
}
fn default_acknowledge() -> Acknowledge {
    Acknowledge::Fdatasync
}

/// The workloads. Externally tagged, so that a wrong key keeps its line:
/// `[workload.append-log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WorkloadSpec {
    /// See [`AppendLog`].
    AppendLog(AppendLog),
}

/// One record that the plan will write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlannedWrite {
    /// The writer's stream.
    pub stream: StreamId,
    /// Place in the stream.
    pub sequence: Sequence,
    /// The n-th write of this address by this stream, from 1.
    pub version: u32,
    /// Offset of the record in its object.
    pub address: ByteOffset,
    /// Length of the record in bytes.
    pub length_bytes: u32,
}

/// One writer with every choice made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWriter {
    /// Its stream.
    pub stream: StreamId,
    /// The object it writes: a file name, or `device` on raw stacks.
    pub object: String,
    /// Where its first record lies in the object.
    pub first_address: ByteOffset,
    /// How many records it writes.
    pub records: u32,
}

/// The workload of one cell with every choice made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWorkload {
    /// Length of every record.
    pub record_bytes: u32,
    /// The writers, by stream.
    pub writers: Vec<PlannedWriter>,
    /// Growing or preallocated.
    pub file: LogFile,
    /// The acknowledging call.
    pub acknowledge: Acknowledge,
    /// Whether files are opened with `O_DIRECT`.
    pub direct: bool,
    /// Pause between a writer's records, in microseconds.
    pub pause_us: u32,
}

impl PlannedWorkload {
    /// The `sequence`-th write of `writer`, or `None` past its end (or, for a
    /// plan that was edited by hand, past the end of all addresses).
    #[must_use]
    pub fn write(&self, writer: &PlannedWriter, sequence: u32) -> Option<PlannedWrite> {
        if sequence >= writer.records {
            return None;
        }
        let into = u64::from(sequence).checked_mul(u64::from(self.record_bytes))?;
        Some(PlannedWrite {
            stream: writer.stream,
            sequence: Sequence(u64::from(sequence)),
            version: 1,
            address: ByteOffset(writer.first_address.0.checked_add(into)?),
            length_bytes: self.record_bytes,
        })
    }

    /// Every write of `writer`, in order.
    pub fn writes<'a>(
        &'a self,
        writer: &'a PlannedWriter,
    ) -> impl Iterator<Item = PlannedWrite> + 'a {
        (0..writer.records).filter_map(|sequence| self.write(writer, sequence))
    }

    /// All records of all writers.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.writers
            .iter()
            .map(|writer| u64::from(writer.records))
            .sum()
    }
}
