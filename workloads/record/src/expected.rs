//! The record that should be at a place, and the blocks a drive may tear it into.

use crate::key::{
    MAX_LOGICAL_BLOCK_BYTES, MAX_RECORD_BYTES, MIN_LOGICAL_BLOCK_BYTES, MIN_RECORD_BYTES,
    SECTOR_LEN,
};
use crate::{RecordError, RecordKey};

/// The record that should be here, and the unit in which the drive may tear it.
///
/// The fields are open, and [`classify`](crate::classify()) and
/// [`sector_states`](crate::sector_states) take any values: a logical block size that
/// [`Expected::new`] refuses is rounded down to a power of two and clamped to 512..=65536, a length
/// to whole sectors and 512..=1 MiB, and a key that no record can have simply owns no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Expected {
    /// The record.
    pub key: RecordKey,
    /// The drive's logical block. Blocks lie on multiples of this size in the object, so a block
    /// larger than the record that holds it whole counts as the record.
    pub logical_block_bytes: u32,
}

impl Expected {
    /// A record and a logical block size that can exist.
    ///
    /// # Errors
    /// What [`RecordKey::check`] refuses, or [`RecordError::LogicalBlock`].
    pub fn new(key: RecordKey, logical_block_bytes: u32) -> Result<Self, RecordError> {
        key.check()?;
        let expected = Self {
            key,
            logical_block_bytes,
        };
        if expected.block_bytes() != logical_block_bytes {
            return Err(RecordError::LogicalBlock {
                logical_block_bytes,
            });
        }
        Ok(expected)
    }

    fn block_bytes(&self) -> u32 {
        let clamped = self
            .logical_block_bytes
            .clamp(MIN_LOGICAL_BLOCK_BYTES, MAX_LOGICAL_BLOCK_BYTES);
        1 << clamped.ilog2()
    }

    /// How many bytes belong to the record.
    pub(crate) fn length(&self) -> u32 {
        let clamped = self.key.length.clamp(MIN_RECORD_BYTES, MAX_RECORD_BYTES);
        clamped - clamped % SECTOR_LEN
    }

    /// The record's part of what was read from its address.
    pub(crate) fn part_of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let length = usize::try_from(self.length()).unwrap_or(usize::MAX);
        bytes.get(..length).unwrap_or(bytes)
    }

    /// The logical block that a sector of the record lies in, counted from the block of sector 0.
    pub(crate) fn block_of(&self, sector: u32) -> u64 {
        let block = u64::from(self.block_bytes());
        (self.key.address % block + u64::from(sector) * u64::from(SECTOR_LEN)) / block
    }
}
