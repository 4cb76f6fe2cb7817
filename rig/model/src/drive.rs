//! What a drive promises, what it tells its host, and what it does.
//!
//! The rules these settings feed are in `controller/crash/FAULTS.md`.

use serde::{Deserialize, Serialize};

use crate::units::Size;

/// Where a completed write lives until it is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// In memory that a power cut empties: a completed write may be lost until
    /// a flush that arrived after it has completed.
    Volatile,
    /// In memory that capacitors save (PLP): a completed write is durable, a
    /// command in flight is not.
    Protected,
    /// No cache: a completed write is on the medium.
    None,
}

/// Whether a promise is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Honesty {
    /// The command does what it says.
    #[default]
    Honoured,
    /// The command is answered with success and does nothing.
    Ignored,
}

/// What `queue/write_cache` says to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCacheReported {
    /// "write back": the host sends flushes.
    Back,
    /// "write through": the host sends none. On a volatile drive this is the
    /// hidden `nobarrier`.
    Through,
}

/// Which completed, undurable writes may survive a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Survivors {
    /// Any subset of the fragments.
    #[default]
    Any,
    /// A prefix in completion order; commands in flight come after all of them.
    Prefix,
}

/// Which fragments of commands in flight may survive a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InFlight {
    /// Any subset of the fragments.
    #[default]
    Any,
    /// A prefix in submission order, each command from its first block on.
    Prefix,
    /// Nothing of them.
    None,
}

/// What a discarded block reads back as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiscardReads {
    /// Zeros.
    #[default]
    Zero,
    /// What was there before.
    Old,
    /// The byte 0xDB throughout.
    Pattern,
}

/// A planted fault of the drive: always named in the report, never a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PlantedFault {
    /// Fragments tear inside a logical block, at every 512-byte sector.
    Shorn,
    /// In each crash image one bit of one surviving block is flipped.
    BitCorruption,
    /// In each crash image one surviving block also lands one block too far.
    Misdirected,
    /// Completed writes that a flush covered may be lost out of order: a flush
    /// keeps every write but the first it covers.
    Unserializable,
    /// One acknowledged-durable write of the recording, chosen by the seed, is
    /// never on the medium.
    OneLostWrite,
    /// Writes submitted in this window of recorded events fail with EIO.
    WriteEio {
        /// First event after `base` that fails.
        from_event: u64,
        /// First event after `base` that no longer fails.
        to_event: u64,
    },
    /// Writes submitted in this window of recorded events fail with ENOSPC.
    WriteEnospc {
        /// First event after `base` that fails.
        from_event: u64,
        /// First event after `base` that no longer fails.
        to_event: u64,
    },
    /// Every command submitted from this event after `base` on fails.
    DeadDevice {
        /// First event after `base` that fails.
        from_event: u64,
    },
}

/// How long a command takes: to imitate a disk or an NVMe drive, and to keep
/// several commands in flight at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceTimes {
    /// Microseconds from the arrival of a write to its completion.
    pub write_us: u32,
    /// Microseconds from the arrival of a flush to its completion.
    pub flush_us: u32,
}

/// A drive as a scenario describes it. [`DriveSpec::resolve`] fills the gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveSpec {
    /// Where completed writes live.
    pub cache: Cache,
    /// Whether FLUSH works from the first record on.
    #[serde(default)]
    pub flush: Honesty,
    /// Whether FUA works from the first record on.
    #[serde(default)]
    pub fua: Honesty,
    /// What the host is told. Default: `back`, but `through` without a cache.
    #[serde(default)]
    pub write_cache_reported: Option<WriteCacheReported>,
    /// The device's logical block, the unit of tearing. Default 4096.
    #[serde(default)]
    pub logical_block_bytes: Option<Size>,
    /// A command of at most this size is all or nothing. Default: one logical block.
    #[serde(default)]
    pub atomic_write_bytes: Option<Size>,
    /// A command that crosses a multiple of this is not atomic; 0 = no boundary.
    #[serde(default)]
    pub atomic_boundary_bytes: Option<Size>,
    /// Which completed, undurable writes may survive.
    #[serde(default)]
    pub survivors: Survivors,
    /// Which fragments in flight may survive.
    #[serde(default)]
    pub in_flight: InFlight,
    /// Capacity of the cache: an older write has been destaged. Default: no limit.
    #[serde(default)]
    pub cache_bytes: Option<Size>,
    /// What discarded blocks read as.
    #[serde(default)]
    pub discard_reads: DiscardReads,
    /// Service times.
    #[serde(default)]
    pub service: ServiceTimes,
    /// Planted faults.
    #[serde(default)]
    pub faults: Vec<PlantedFault>,
}

/// A drive with nothing left open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveSettings {
    /// Where completed writes live.
    pub cache: Cache,
    /// Whether FLUSH works from the first record on.
    pub flush: Honesty,
    /// Whether FUA works from the first record on.
    pub fua: Honesty,
    /// What the host is told.
    pub write_cache_reported: WriteCacheReported,
    /// The device's logical block: 512, 1024, 2048 or 4096.
    pub logical_block_bytes: u32,
    /// A command of at most this size is all or nothing.
    pub atomic_write_bytes: u32,
    /// A command that crosses a multiple of this is not atomic; 0 = no boundary.
    pub atomic_boundary_bytes: u32,
    /// Which completed, undurable writes may survive.
    pub survivors: Survivors,
    /// Which fragments in flight may survive.
    pub in_flight: InFlight,
    /// Capacity of the cache; `None` = no limit.
    pub cache_bytes: Option<u64>,
    /// What discarded blocks read as.
    pub discard_reads: DiscardReads,
    /// Service times.
    pub service: ServiceTimes,
    /// Planted faults.
    pub faults: Vec<PlantedFault>,
}

/// Why a [`DriveSpec`] describes no drive. `key` is the offending key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{key}`: {reason}")]
pub struct DriveSpecError {
    /// The key in the drive's table.
    pub key: &'static str,
    /// What is wrong and what would be right.
    pub reason: String,
}

/// Logical blocks that Linux takes on every file system here (page size 4096).
const LOGICAL_BLOCKS_BYTES: [u64; 4] = [512, 1024, 2048, 4096];
/// No real drive's atomic unit comes near this; larger is a slip of the pen.
const MAX_ATOMIC_BYTES: u64 = 16 << 20;
/// A service time above this makes a run look hung.
const MAX_SERVICE_US: u32 = 1_000_000;

impl DriveSpec {
    /// Fills every gap and checks what the drive can be.
    ///
    /// # Errors
    /// Names the key whose value no drive has.
    pub fn resolve(&self) -> Result<DriveSettings, DriveSpecError> {
        let block = self.logical_block_bytes.map_or(4096, |size| size.0);
        if !LOGICAL_BLOCKS_BYTES.contains(&block) {
            return Err(DriveSpecError {
                key: "logical_block_bytes",
                reason: format!("{block} is not 512, 1024, 2048 or 4096"),
            });
        }
        let atomic = self.atomic_write_bytes.map_or(block, |size| size.0);
        if atomic < block || !atomic.is_multiple_of(block) || atomic > MAX_ATOMIC_BYTES {
            return Err(DriveSpecError {
                key: "atomic_write_bytes",
                reason: format!(
                    "{atomic} is not a multiple of the logical block ({block}) up to 16 MiB"
                ),
            });
        }
        let boundary = self.atomic_boundary_bytes.map_or(0, |size| size.0);
        if boundary != 0
            && (boundary < atomic || !boundary.is_multiple_of(block) || boundary > MAX_ATOMIC_BYTES)
        {
            return Err(DriveSpecError {
                key: "atomic_boundary_bytes",
                reason: format!(
                    "{boundary} is neither 0 nor a multiple of the logical block ({block}) of at least atomic_write_bytes ({atomic}), up to 16 MiB"
                ),
            });
        }
        if self.service.write_us > MAX_SERVICE_US || self.service.flush_us > MAX_SERVICE_US {
            return Err(DriveSpecError {
                key: "service",
                reason: format!("a service time above {MAX_SERVICE_US} us is not a drive"),
            });
        }
        if let Some(Size(0)) = self.cache_bytes {
            return Err(DriveSpecError {
                key: "cache_bytes",
                reason: "a cache of 0 bytes is `cache = \"none\"`".to_owned(),
            });
        }
        let reported = self.write_cache_reported.unwrap_or(match self.cache {
            Cache::None => WriteCacheReported::Through,
            Cache::Volatile | Cache::Protected => WriteCacheReported::Back,
        });
        let narrow = |key: &'static str, value: u64| {
            u32::try_from(value).map_err(|_| DriveSpecError {
                key,
                reason: format!("{value} does not fit"),
            })
        };
        Ok(DriveSettings {
            cache: self.cache,
            flush: self.flush,
            fua: self.fua,
            write_cache_reported: reported,
            logical_block_bytes: narrow("logical_block_bytes", block)?,
            atomic_write_bytes: narrow("atomic_write_bytes", atomic)?,
            atomic_boundary_bytes: narrow("atomic_boundary_bytes", boundary)?,
            survivors: self.survivors,
            in_flight: self.in_flight,
            cache_bytes: self.cache_bytes.map(|size| size.0),
            discard_reads: self.discard_reads,
            service: self.service,
            faults: self.faults.clone(),
        })
    }
}

impl DriveSettings {
    /// A volatile, honest drive with this logical block and nothing special.
    ///
    /// # Panics
    /// Never for 512, 1024, 2048 or 4096; tests and benches use it.
    #[must_use]
    pub fn plain(cache: Cache, logical_block_bytes: u32) -> DriveSettings {
        DriveSettings {
            cache,
            flush: Honesty::Honoured,
            fua: Honesty::Honoured,
            write_cache_reported: WriteCacheReported::Back,
            logical_block_bytes,
            atomic_write_bytes: logical_block_bytes,
            atomic_boundary_bytes: 0,
            survivors: Survivors::Any,
            in_flight: InFlight::Any,
            cache_bytes: None,
            discard_reads: DiscardReads::Zero,
            service: ServiceTimes::default(),
            faults: Vec::new(),
        }
    }

    /// Whether a command of `length_bytes` at `offset_bytes` is all or nothing.
    #[must_use]
    pub fn is_atomic(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        if length_bytes == 0 || length_bytes > u64::from(self.atomic_write_bytes) {
            return false;
        }
        if self.atomic_boundary_bytes == 0 {
            return true;
        }
        let boundary = u64::from(self.atomic_boundary_bytes);
        offset_bytes / boundary == (offset_bytes + (length_bytes - 1)) / boundary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<DriveSettings, DriveSpecError> {
        let spec: DriveSpec = serde_json::from_str(text).expect("valid JSON");
        spec.resolve()
    }

    #[test]
    fn a_drive_without_a_cache_reports_write_through() {
        let drive = spec(r#"{"cache":"none"}"#).expect("a drive");
        assert_eq!(drive.write_cache_reported, WriteCacheReported::Through);
        assert_eq!(drive.atomic_write_bytes, 4096);
    }

    #[test]
    fn an_atomic_unit_below_the_logical_block_is_refused() {
        let error = spec(r#"{"cache":"volatile","atomic_write_bytes":512}"#).expect_err("refused");
        assert_eq!(error.key, "atomic_write_bytes");
    }

    #[test]
    fn a_command_across_the_boundary_is_not_atomic() {
        let drive = spec(
            r#"{"cache":"volatile","atomic_write_bytes":16384,"atomic_boundary_bytes":16384}"#,
        )
        .expect("a drive");
        assert!(drive.is_atomic(16384, 16384));
        assert!(!drive.is_atomic(8192, 16384));
        assert!(drive.is_atomic(8192, 8192));
        assert!(!drive.is_atomic(0, 32768));
    }
}
