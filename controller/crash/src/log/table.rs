//! Flags of every entry and places of some: enough to find any header again
//! without holding one number of eight bytes for each.

use super::entries::Entry;
use super::format::{ENTRY_HEADER_BYTES, FLAG_DISCARD, decode_entry};
use super::reader::Recording;

/// The place of every entry of which the number is a multiple of this is kept.
const STEP: u64 = 64;

/// Flags and places of the entries of a log.
#[derive(Debug, Default)]
pub struct EntryTable {
    flags: Vec<u8>,
    places: Vec<u64>,
}

impl EntryTable {
    /// Adds the next entry: its number is that of the entries so far.
    pub(super) fn push(&mut self, entry: &Entry) {
        if (self.flags.len() as u64).is_multiple_of(STEP) {
            self.places.push(entry.header_at);
        }
        self.flags.push(entry.flags);
    }

    /// Number of entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.flags.len() as u64
    }

    /// The flags of an entry as they stand in the log; `None` beyond the last.
    #[must_use]
    pub fn flags_of(&self, entry: u64) -> Option<u8> {
        self.flags.get(usize::try_from(entry).ok()?).copied()
    }

    /// Byte offset of an entry's header: reads at most [`STEP`] headers of the
    /// log that `recording` was read from.
    pub(super) fn header_of(
        &self,
        entry: u64,
        recording: &Recording,
        sector_bytes: u64,
    ) -> Option<u64> {
        self.flags_of(entry)?;
        let mut at = *self.places.get(usize::try_from(entry / STEP).ok()?)?;
        for _ in 0..entry % STEP {
            let mut bytes = [0u8; ENTRY_HEADER_BYTES];
            recording.read(at, &mut bytes);
            let header = decode_entry(&bytes);
            let data = if header.flags & FLAG_DISCARD == 0 {
                header.sectors.checked_mul(sector_bytes)?
            } else {
                0
            };
            at = at.checked_add(sector_bytes)?.checked_add(data)?;
        }
        Some(at)
    }
}
